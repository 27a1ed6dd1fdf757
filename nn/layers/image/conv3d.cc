// Conv3D, kernel [kd, kh, kw, c, filters]: the windows along the depth side by side, as channels of a convolution of
// the planes.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

struct Conv3DConfig : LinearConfig {
  int64_t filters = 0;
  std::vector<int64_t> kernel_size{}, strides{}, dilation{};  // [depth, height, width]
  kernels::Padding padding = kernels::Padding::kValid;

  kernels::Window WindowOf(int64_t extent, size_t axis) const {
    return kernels::MakeWindow(extent, kernels::Dilated(kernel_size[axis], dilation[axis]), strides[axis],
                               padding);
  }
};

// A convolution of planes whose channels are those of the windows along the depth: kernel [kh, kw, kd c, filters], a
// transposition of the variable, whose gradient is transposed back. Variables: the kernel, and the bias if it exists.
class PlaneConvolutionOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::Conv2DParams& params,
                                                         const Shape& kernel, kernels::Device& device) {
    std::unique_ptr<PlaneConvolutionOp> op(new PlaneConvolutionOp(params.use_bias));
    CAIRN_ASSIGN_OR_RETURN(op->convolution_, device.ops().MakeConv2D(params));
    CAIRN_ASSIGN_OR_RETURN(op->transpose_,
                           device.ops().MakeTranspose({.input = {.shape = kernel}, .axes = {1, 2, 0, 3, 4}}));
    for (auto* memory : {&op->kernel_, &op->kernel_gradient_}) {
      CAIRN_ASSIGN_OR_RETURN(*memory, device.Allocate(kernel.num_elements(), "Conv3D: kernel"));
    }
    return op;
  }

  const kernels::TensorDesc& output() const override { return convolution_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(transpose_->Forward(args.variables[0], kernel_->data()));
    return convolution_->Forward(args.inputs[0], kernel_->data(), use_bias_ ? args.variables[1] : nullptr,
                                 args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(convolution_->Backward(
        args.inputs[0], kernel_->data(), args.output, args.output_gradient, args.input_gradients[0],
        kernel_gradient_->data(), use_bias_ ? args.gradients[1] : nullptr));
    return transpose_->Backward(nullptr, nullptr, kernel_gradient_->data(), args.gradients[0]);
  }

 private:
  explicit PlaneConvolutionOp(bool use_bias) : use_bias_(use_bias) {}

  const bool use_bias_;
  std::unique_ptr<kernels::LinearOp> convolution_;
  std::unique_ptr<kernels::UnaryOp> transpose_;  // of the kernel
  std::unique_ptr<kernels::DeviceMemory> kernel_, kernel_gradient_;
};

class Conv3DLayer final : public Layer {
 public:
  Conv3DLayer(std::string name, Conv3DConfig config)
      : Layer(std::move(name), "Conv3D"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], 3));
    Shape output;
    for (size_t axis = 0; axis < 3; ++axis) {
      output.Append(config_.WindowOf(inputs[0][static_cast<int>(axis)], axis).output);
    }
    if (output.num_elements() < 1) {
      return absl::InvalidArgumentError(absl::StrCat("a window of ", absl::StrJoin(config_.kernel_size, "x"),
                                                     " does not fit input ", inputs[0].ToString()));
    }
    output.Append(config_.filters);
    return output;
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return config_.KernelAndBias(KernelOf(inputs[0][3]), config_.filters);
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const Shape& shape = input.shape;
    const int64_t examples = shape[0], height = shape[2], width = shape[3], channels = shape[4];
    CAIRN_ASSIGN_OR_RETURN(auto windows,
                           device.ops().MakeDepthWindows(
                               {.input = input.WithShape({examples, shape[1], height * width, channels}),
                                .window = config_.kernel_size[0],
                                .stride = config_.strides[0],
                                .dilation = config_.dilation[0],
                                .padding = config_.padding}));
    const int64_t depth = windows->output().shape[1], stacked = windows->output().shape[3];
    const kernels::Conv2DParams planes = {
        .input = windows->output().WithShape({examples * depth, height, width, stacked}),
        .filters = config_.filters,
        .kernel_height = config_.kernel_size[1],
        .kernel_width = config_.kernel_size[2],
        .stride_height = config_.strides[1],
        .stride_width = config_.strides[2],
        .dilation_height = config_.dilation[1],
        .dilation_width = config_.dilation[2],
        .padding = config_.padding,
        .use_bias = config_.use_bias,
        .relu = config_.activation.is_plain_relu()};
    CAIRN_ASSIGN_OR_RETURN(auto convolution, PlaneConvolutionOp::Create(planes, KernelOf(channels), device));
    const kernels::TensorDesc image = convolution->output();
    std::vector<ChainOp::Link> links;
    links.push_back({std::make_unique<UnaryLayerOp>(std::move(windows))});
    links.push_back({std::move(convolution), config_.use_bias ? size_t{2} : 1});
    kernels::TensorDesc output =
        image.WithShape({examples, depth, image.shape[1], image.shape[2], config_.filters});
    if (image.layout != kernels::Layout::kRowMajor) {
      CAIRN_ASSIGN_OR_RETURN(auto reorder, ReorderOp::Create(image, device));
      links.push_back({std::move(reorder)});
    }
    CAIRN_ASSIGN_OR_RETURN(auto chain, ChainOp::Create(std::move(links), device));
    return ReluFusedOp(std::make_unique<ReshapedOp>(std::move(output), std::move(chain)), config_.activation,
                       device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    std::vector<std::string> names = {onnx.ChannelsFirst(inputs[0]),
                                      onnx.Weights(variables[0], {4, 3, 0, 1, 2})};
    if (config_.use_bias) names.push_back(onnx.Weights(variables[1]));
    const std::string sum = onnx.Add("Conv", std::move(names),
                                     OnnxWindows(input.dims().first(3), config_.kernel_size, config_.strides,
                                                 config_.dilation, config_.padding));
    return OnnxActivation(config_.activation, onnx.FromChannelsFirst(sum, output), onnx);
  }

 private:
  Shape KernelOf(int64_t channels) const {
    return {config_.kernel_size[0], config_.kernel_size[1], config_.kernel_size[2], channels,
            config_.filters};
  }

  const Conv3DConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeConv3D(std::string name, ConfigReader& config) {
  Conv3DConfig read{ReadLinearConfig(config)};
  read.filters = config.PositiveInt("filters");
  read.kernel_size = config.PositiveInts("kernel_size", 3);
  read.strides = config.PositiveInts("strides", 3, {{1, 1, 1}});
  read.dilation = config.PositiveInts("dilation_rate", 3, {{1, 1, 1}});
  read.padding = ReadPadding(config);
  config.Refuse("data_format", "channels_last");
  config.Refuse("groups", 1);
  return std::make_unique<Conv3DLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn

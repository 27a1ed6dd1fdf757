// Conv2DTranspose, kernel [kh, kw, filters, c], and Conv1DTranspose, kernel [width, filters, c].
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

class ConvTransposeLayer final : public Layer {
 public:
  // `axes`: 2, or 1 for a sequence. The first element of each pair is then 1.
  ConvTransposeLayer(std::string name, std::string class_name, int axes, ConvConfig config)
      : Layer(std::move(name), std::move(class_name)), axes_(axes), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], static_cast<size_t>(axes_)));
    const Shape image = axes_ == 2 ? inputs[0] : Shape({1, inputs[0][0], inputs[0][1]});
    CAIRN_ASSIGN_OR_RETURN(const Shape output, ImageOutputShape(image, [this](kernels::TensorDesc input) {
                             return Params(std::move(input));
                           }));
    return axes_ == 2 ? output : Shape({output[1], output[2]});
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    Shape kernel;
    for (size_t axis = FirstAxis(); axis < 2; ++axis) kernel.Append(config_.kernel_size[axis]);
    kernel.Append(config_.filters);
    kernel.Append(inputs[0][axes_]);
    return config_.KernelAndBias(std::move(kernel), config_.filters);
  }

  bool accepts_blocked(absl::Span<const Shape>) const override { return axes_ == 2; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto make = [&](const kernels::TensorDesc& image) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
      kernels::Conv2DTransposeParams op_params = Params(image);
      op_params.needs_input_gradient = params.needs_input_gradients;
      CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2DTranspose(op_params));
      return std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias);
    };
    auto op = axes_ == 2 ? make(params.inputs[0]) : MakeRowOp(params.inputs[0], make, device);
    CAIRN_RETURN_IF_ERROR(op);
    return ActivatedOp(*std::move(op), config_.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape image = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&image, 1}));
    // ConvTranspose is the gradient of a convolution from `output` to `image`. Its attribute "pads" is the
    // padding of that convolution. If the windows of that convolution do not reach the last rows and columns
    // of `output`, these are 0, and "output_padding" is their number.
    std::vector<int64_t> before, after, unreached;
    for (int axis = 0; axis < axes_; ++axis) {
      const size_t own = FirstAxis() + static_cast<size_t>(axis);
      const int64_t window = config_.kernel_size[own], stride = config_.strides[own];
      const kernels::Window forward = kernels::MakeWindow(output[axis], window, stride, config_.padding);
      before.push_back(forward.pad_before);
      after.push_back(forward.pad_after);
      unreached.push_back(output[axis] + forward.pad_before + forward.pad_after -
                          ((image[axis] - 1) * stride + window));
    }
    before.insert(before.end(), after.begin(), after.end());
    const auto own = [&](const std::array<int64_t, 2>& values) {
      return std::vector<int64_t>(values.begin() + FirstAxis(), values.end());
    };
    std::vector<std::string> names = {onnx.ChannelsFirst(inputs[0])};
    names.push_back(axes_ == 2 ? onnx.Weights(variables[0], {3, 2, 0, 1})
                               : onnx.Weights(variables[0], {2, 1, 0}));
    if (config_.use_bias) names.push_back(onnx.Weights(variables[1]));
    const std::string sum = onnx.Add("ConvTranspose", std::move(names),
                                     {{"kernel_shape", own(config_.kernel_size)},
                                      {"strides", own(config_.strides)},
                                      {"pads", std::move(before)},
                                      {"output_padding", std::move(unreached)}});
    return OnnxActivation(config_.activation, onnx.FromChannelsFirst(sum, output), onnx);
  }

 private:
  // The first of the layer's axes in the pairs.
  size_t FirstAxis() const { return 2 - static_cast<size_t>(axes_); }

  kernels::Conv2DTransposeParams Params(kernels::TensorDesc input) const {
    return {.input = std::move(input),
            .filters = config_.filters,
            .kernel_height = config_.kernel_size[0],
            .kernel_width = config_.kernel_size[1],
            .stride_height = config_.strides[0],
            .stride_width = config_.strides[1],
            .padding = config_.padding,
            .use_bias = config_.use_bias};
  }

  const int axes_;
  const ConvConfig config_;
};

std::unique_ptr<Layer> MakeConvTranspose(std::string name, const char* class_name, int axes,
                                         ConfigReader& config) {
  ConvConfig read =
      axes == 2 ? ReadConvConfig(config) : ReadConv1DConfig(config, "kernel", ReadPadding(config));
  read.filters = config.PositiveInt("filters");
  if (read.dilation != std::array<int64_t, 2>{1, 1}) {
    config.Fail("dilation_rate", "dilated transposed convolutions are not supported, only 1");
  }
  config.Refuse("groups", 1);
  config.RefuseUnlessNull({"output_padding"});
  return std::make_unique<ConvTransposeLayer>(std::move(name), class_name, axes, std::move(read));
}

}  // namespace

std::unique_ptr<Layer> MakeConv1DTranspose(std::string name, ConfigReader& config) {
  return MakeConvTranspose(std::move(name), "Conv1DTranspose", 1, config);
}

std::unique_ptr<Layer> MakeConv2DTranspose(std::string name, ConfigReader& config) {
  return MakeConvTranspose(std::move(name), "Conv2DTranspose", 2, config);
}

}  // namespace cairn::nn

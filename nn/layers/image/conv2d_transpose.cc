// Conv2DTranspose: kernel [kh, kw, filters, c].
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Conv2DTransposeLayer final : public Layer {
 public:
  Conv2DTransposeLayer(std::string name, ConvConfig config)
      : Layer(std::move(name), "Conv2DTranspose"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    return ImageOutputShape(inputs[0],
                            [this](kernels::TensorDesc input) { return Params(std::move(input)); });
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return config_.KernelAndBias(
        {config_.kernel_size[0], config_.kernel_size[1], config_.filters, inputs[0][2]}, config_.filters);
  }

  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    kernels::Conv2DTransposeParams op_params = Params(params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2DTranspose(op_params));
    return ActivatedOp(std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias), config_.activation,
                       device);
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
    for (int axis = 0; axis < 2; ++axis) {
      const int64_t window = config_.kernel_size[static_cast<size_t>(axis)];
      const int64_t stride = config_.strides[static_cast<size_t>(axis)];
      const kernels::Window forward = kernels::MakeWindow(output[axis], window, stride, config_.padding);
      before.push_back(forward.pad_before);
      after.push_back(forward.pad_after);
      unreached.push_back(output[axis] + forward.pad_before + forward.pad_after -
                          ((image[axis] - 1) * stride + window));
    }
    before.insert(before.end(), after.begin(), after.end());
    const auto pair = [](const std::array<int64_t, 2>& values) {
      return std::vector<int64_t>(values.begin(), values.end());
    };
    std::vector<std::string> names = {onnx.ChannelsFirst(inputs[0]),
                                      onnx.Weights(variables[0], {3, 2, 0, 1})};
    if (config_.use_bias) names.push_back(onnx.Weights(variables[1]));
    const std::string sum = onnx.Add("ConvTranspose", std::move(names),
                                     {{"kernel_shape", pair(config_.kernel_size)},
                                      {"strides", pair(config_.strides)},
                                      {"pads", std::move(before)},
                                      {"output_padding", std::move(unreached)}});
    return OnnxActivation(config_.activation, onnx.FromChannelsFirst(sum, output), onnx);
  }

 private:
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

  const ConvConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeConv2DTranspose(std::string name, ConfigReader& config) {
  ConvConfig read = ReadConvConfig(config);
  read.filters = config.PositiveInt("filters");
  if (read.dilation != std::array<int64_t, 2>{1, 1}) {
    config.Fail("dilation_rate", "dilated transposed convolutions are not supported, only 1");
  }
  config.Refuse("groups", 1);
  config.RefuseUnlessNull({"output_padding"});
  return std::make_unique<Conv2DTransposeLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn

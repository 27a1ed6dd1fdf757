// Dense: kernel [inputs, units] over the last axis.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear_config.h"

namespace cairn::nn {
namespace {

class DenseLayer final : public Layer {
 public:
  DenseLayer(std::string name, int64_t units, LinearConfig config)
      : Layer(std::move(name), "Dense"), units_(units), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() < 1) return absl::InvalidArgumentError("input [] has no axis to work on");
    return WithLastAxis(inputs[0], units_);
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return config_.KernelAndBias({inputs[0][inputs[0].rank() - 1], units_}, units_);
  }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(inputs[0].rank() > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    const int64_t inputs = input[input.rank() - 1];
    const ActivationSpec& activation = config_.activation;
    CAIRN_ASSIGN_OR_RETURN(
        auto op,
        device.ops().MakeDense({.input = params.inputs[0].WithShape({input.num_elements() / inputs, inputs}),
                                .units = units_,
                                .use_bias = config_.use_bias,
                                .relu = activation.is_plain_relu(),
                                .needs_input_gradient = params.needs_input_gradients}));
    kernels::TensorDesc output = op->output().WithShape(WithLastAxis(input, units_));
    auto linear =
        std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias, activation.is_plain_relu());
    return ReluFusedOp(std::make_unique<ReshapedOp>(std::move(output), std::move(linear)), activation,
                       device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    const std::string x = onnx.ChannelsLast(inputs[0]), kernel = onnx.Weights(variables[0]);
    std::string output;
    if (input.rank() == 1) {
      std::vector<std::string> names = {x, kernel};
      if (config_.use_bias) names.push_back(onnx.Weights(variables[1]));
      output = onnx.Add("Gemm", std::move(names));
    } else {
      output = onnx.Add("MatMul", {x, kernel});
      if (config_.use_bias) output = onnx.Add("Add", {output, onnx.Weights(variables[1])});
    }
    return OnnxActivation(config_.activation, onnx.FromChannelsLast(output, WithLastAxis(input, units_)),
                          onnx);
  }

 private:
  const int64_t units_;
  const LinearConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeDense(std::string name, ConfigReader& config) {
  const int64_t units = config.PositiveInt("units");
  LinearConfig read = ReadLinearConfig(config);
  config.RefuseUnlessNull({"quantization_config", "lora_rank"});
  return std::make_unique<DenseLayer>(std::move(name), units, std::move(read));
}

}  // namespace cairn::nn

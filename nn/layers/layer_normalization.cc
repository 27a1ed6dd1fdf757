// LayerNormalization and RMSNormalization over one axis or several, and LlamaLayerNorm of keras_hub.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/norm_weights.h"

namespace cairn::nn {
namespace {

struct LayerNormConfig : NormWeights {
  float epsilon = 0;
  bool rms = false;  // RMSNormalization and LlamaLayerNorm
  bool passes_mask = true;
};

// Variables: gamma and beta, if they exist.
class LayerNormOp final : public LayerOp {
 public:
  LayerNormOp(kernels::TensorDesc output, bool scale, bool center, std::unique_ptr<kernels::LayerNorm> op)
      : output_(std::move(output)), scale_(scale), center_(center), op_(std::move(op)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return {.output = false}; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], scale_ ? args.variables.front() : nullptr,
                        center_ ? args.variables.back() : nullptr, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    return op_->Backward(args.inputs[0], scale_ ? args.variables.front() : nullptr, args.output_gradient,
                         args.input_gradients[0], scale_ ? args.gradients.front() : nullptr,
                         center_ ? args.gradients.back() : nullptr);
  }

 private:
  const kernels::TensorDesc output_;
  const bool scale_, center_;
  const std::unique_ptr<kernels::LayerNorm> op_;
};

class LayerNormalizationLayer final : public Layer {
 public:
  LayerNormalizationLayer(std::string name, std::string class_name, LayerNormConfig config,
                          std::vector<int64_t> axes)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)), axes_(std::move(axes)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(ResolveAxes(axes_, inputs[0]));
    return inputs[0];
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    Shape width;  // the extents of the normalized axes
    const std::vector<int> axes = *ResolveAxes(axes_, inputs[0]);
    for (const int axis : axes) width.Append(inputs[0][axis - 1]);
    return config_.Variables(width, config_.rms ? "scale" : "gamma");
  }

  // Keras' RMSNormalization drops it.
  MaskUse mask_use() const override { return config_.passes_mask ? MaskUse::kPasses : MaskUse::kDrops; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(ResolveAxes(axes_, inputs[0])->front() > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int> axes,
                           ResolveAxes(axes_, Shape(input.shape.dims().subspan(1))));
    int64_t width = 1;
    for (const int axis : axes) width *= input.shape[axis];
    return MakeOnLastAxes(
        input, axes, config_.variables(),
        [&](const kernels::TensorDesc& last) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
          CAIRN_ASSIGN_OR_RETURN(auto op,
                                 device.ops().MakeLayerNorm({.rows = last.shape.num_elements() / width,
                                                             .width = width,
                                                             .type = last.type,
                                                             .epsilon = config_.epsilon,
                                                             .scale = config_.scale,
                                                             .center = config_.center,
                                                             .rms = config_.rms}));
          return std::make_unique<LayerNormOp>(last, config_.scale, config_.center, std::move(op));
        },
        device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int> axes, ResolveAxes(axes_, shape));
    Shape width;
    for (const int axis : axes) width.Append(shape[axis - 1]);
    return OnnxOnLastAxes(
        inputs[0], axes,
        [&](const std::string& last) {
          if (config_.rms) return RmsInOnnx(last, axes.size(), variables[0], onnx);
          std::vector<std::string> names = {last};
          names.push_back(
              config_.scale ? onnx.Weights(variables.front())
                            : onnx.Floats("ones", width,
                                          std::vector<float>(static_cast<size_t>(width.num_elements()), 1)));
          if (config_.center) names.push_back(onnx.Weights(variables.back()));
          return onnx.Add("LayerNormalization", std::move(names),
                          {{"axis", -static_cast<int64_t>(axes.size())}, {"epsilon", config_.epsilon}});
        },
        onnx);
  }

 private:
  // Over the last `count` axes of `x`.
  std::string RmsInOnnx(const std::string& x, size_t count, const OnnxVariable& scale,
                        OnnxBuilder& onnx) const {
    std::vector<int64_t> axes;
    for (size_t i = count; i > 0; --i) axes.push_back(-static_cast<int64_t>(i));
    const std::string squares =
        onnx.Add("ReduceMean", {onnx.Add("Mul", {x, x})}, {{"axes", std::move(axes)}});
    const std::string deviation =
        onnx.Add("Sqrt", {onnx.Add("Add", {squares, onnx.Scalar("epsilon", config_.epsilon)})});
    return onnx.Add("Mul", {onnx.Add("Div", {x, deviation}), onnx.Weights(scale)});
  }

  const LayerNormConfig config_;
  const std::vector<int64_t> axes_;  // counted with the batch, from the end if negative
};

}  // namespace

std::unique_ptr<Layer> MakeLayerNormalization(std::string name, ConfigReader& config) {
  LayerNormConfig read = {ReadNormWeights(config)};
  read.epsilon = static_cast<float>(config.Number("epsilon", 1e-3));
  if (!(read.epsilon >= 0)) config.Fail("epsilon", absl::StrCat(read.epsilon, " is negative"));
  config.Refuse("rms_scaling", false);
  return std::make_unique<LayerNormalizationLayer>(std::move(name), "LayerNormalization", std::move(read),
                                                   config.Ints("axis", {{-1}}));
}

namespace {

std::unique_ptr<Layer> MakeRms(std::string name, std::string class_name, bool passes_mask,
                               ConfigReader& config) {
  LayerNormConfig read = {NormWeights{.center = false, .gamma = {.center = 1}}};
  read.epsilon = static_cast<float>(config.Number("epsilon", 1e-6));
  read.rms = true;
  read.passes_mask = passes_mask;
  if (!(read.epsilon >= 0)) config.Fail("epsilon", absl::StrCat(read.epsilon, " is negative"));
  return std::make_unique<LayerNormalizationLayer>(std::move(name), std::move(class_name), std::move(read),
                                                   config.Ints("axis", {{-1}}));
}

}  // namespace

std::unique_ptr<Layer> MakeLlamaLayerNorm(std::string name, ConfigReader& config) {
  // Within a LlamaTransformerDecoder, which passes its mask.
  return MakeRms(std::move(name), "LlamaLayerNorm", config.Bool("passes_mask", false), config);
}

std::unique_ptr<Layer> MakeRmsNormalization(std::string name, ConfigReader& config) {
  return MakeRms(std::move(name), "RMSNormalization", /*passes_mask=*/false, config);
}

}  // namespace cairn::nn

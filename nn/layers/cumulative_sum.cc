// CumulativeSum and CastToInteger: functions of keras.ops with which models compute masks and positions. No model file
// contains these layers.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/activation.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class CumulativeSumLayer final : public Layer {
 public:
  // `axis` counts the batch.
  CumulativeSumLayer(std::string name, int64_t axis) : Layer(std::move(name), "CumulativeSum"), axis_(axis) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (axis_ > 0 && axis_ <= inputs[0].rank()) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat("axis: ", axis_, " is not supported for input ",
                                                   inputs[0].ToString(), " with its batch"));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    int64_t before = 1, after = 1;
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      if (axis < axis_) before *= input.shape[axis];
      if (axis > axis_) after *= input.shape[axis];
    }
    const int64_t steps = input.shape[static_cast<int>(axis_)];
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakeCumulativeSum({.input = input.WithShape({before, steps, after})}));
    return std::make_unique<ReshapedOp>(input, std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const std::string axis = onnx.Add("Squeeze", {onnx.Ints("axis", {axis_})});  // to a scalar
    return onnx.FromChannelsLast(onnx.Add("CumSum", {onnx.ChannelsLast(inputs[0]), axis}),
                                 onnx.ShapeOf(inputs[0]));
  }

 private:
  const int64_t axis_;
};

// Integers as they are; of other numbers the integer towards 0.
class CastToIntegerLayer final : public Layer {
 public:
  explicit CastToIntegerLayer(std::string name) : Layer(std::move(name), "CastToInteger") {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool takes_integers() const override { return true; }
  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kEach;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    if (IsInteger(input.type)) return std::make_unique<ViewOp>(input);
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeActivation(input, {.kind = kernels::Activation::kTruncate}));
    return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const DType type = onnx.TypeOf(inputs[0]);
    if (IsInteger(type))
      return onnx.FromChannelsLast(onnx.ChannelsLast(inputs[0]), onnx.ShapeOf(inputs[0]), type);
    return OnnxActivation({.function = {.kind = kernels::Activation::kTruncate}}, inputs[0], onnx);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeCastToInteger(std::string name, ConfigReader&) {
  return std::make_unique<CastToIntegerLayer>(std::move(name));
}

std::unique_ptr<Layer> MakeCumulativeSum(std::string name, ConfigReader& config) {
  return std::make_unique<CumulativeSumLayer>(std::move(name), config.PositiveInt("axis"));
}

}  // namespace cairn::nn

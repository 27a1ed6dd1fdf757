// Rescaling: scales and shifts inputs by constants of the model file.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class RescalingLayer final : public Layer {
 public:
  // `scale` and `offset`: one value, or one per element of the last axis.
  RescalingLayer(std::string name, std::vector<float> scale, std::vector<float> offset)
      : Layer(std::move(name), "Rescaling"), scale_(std::move(scale)), offset_(std::move(offset)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const int64_t width = inputs[0].rank() == 0 ? 1 : inputs[0][inputs[0].rank() - 1];
    for (const auto* values : {&scale_, &offset_}) {
      if (values->size() != 1 && static_cast<int64_t>(values->size()) != width) {
        return absl::InvalidArgumentError(
            absl::StrCat(values->size(), " values do not fit the last axis of input ", inputs[0].ToString()));
      }
    }
    return inputs[0];
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(inputs[0].rank() > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakeAffine({.input = params.inputs[0], .scale = scale_, .offset = offset_}));
    return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const auto constant = [&](const char* what, const std::vector<float>& values) {
      const Shape shape = values.size() == 1 ? Shape() : Shape({static_cast<int64_t>(values.size())});
      return onnx.Floats(what, shape, values);
    };
    const std::string scaled = onnx.Add("Mul", {onnx.ChannelsLast(inputs[0]), constant("scale", scale_)});
    return onnx.FromChannelsLast(onnx.Add("Add", {scaled, constant("offset", offset_)}),
                                 onnx.ShapeOf(inputs[0]));
  }

 private:
  const std::vector<float> scale_, offset_;
};

std::vector<float> ToFloats(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

}  // namespace

std::unique_ptr<Layer> MakeRescaling(std::string name, ConfigReader& config) {
  std::vector<float> scale = ToFloats(config.Numbers("scale"));
  std::vector<float> offset = ToFloats(config.Numbers("offset", {{0.0}}));
  return std::make_unique<RescalingLayer>(std::move(name), std::move(scale), std::move(offset));
}

}  // namespace cairn::nn

// UnitNormalization: divides by the L2 norm over some axes.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

constexpr double kSmallestNorm = 1e-12;  // of Keras

class UnitNormalizationLayer final : public Layer {
 public:
  // `axes` are counted with the batch.
  UnitNormalizationLayer(std::string name, std::vector<int64_t> axes, float smallest_norm)
      : Layer(std::move(name), "UnitNormalization"), axes_(std::move(axes)), smallest_norm_(smallest_norm) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(ResolveAxes(axes_, inputs[0]));
    return inputs[0];
  }
  MaskUse mask_use() const override { return MaskUse::kPasses; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

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
        input, axes, /*variables=*/0,
        [&](const kernels::TensorDesc& last) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
          const kernels::TensorDesc rows = last.WithShape({last.shape.num_elements() / width, width});
          CAIRN_ASSIGN_OR_RETURN(auto op,
                                 device.ops().MakeUnitNorm({.input = rows, .epsilon = smallest_norm_}));
          return std::make_unique<ReshapedOp>(last, std::make_unique<UnaryLayerOp>(std::move(op)));
        },
        device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int> axes, ResolveAxes(axes_, shape));
    const std::string x = onnx.ChannelsLast(inputs[0]);
    const std::string norm =
        onnx.Add("ReduceL2", {x}, {{"axes", std::vector<int64_t>(axes.begin(), axes.end())}});
    const std::string divisor = onnx.Add("Max", {norm, onnx.Scalar("smallest", smallest_norm_)});
    return onnx.FromChannelsLast(onnx.Add("Div", {x, divisor}), shape);
  }

 private:
  const std::vector<int64_t> axes_;
  const float smallest_norm_;
};

}  // namespace

std::unique_ptr<Layer> MakeUnitNormalization(std::string name, ConfigReader& config) {
  // The function normalize has an epsilon.
  const auto smallest_norm = static_cast<float>(config.Number("epsilon", kSmallestNorm));
  return std::make_unique<UnitNormalizationLayer>(std::move(name), config.Ints("axis", {{-1}}),
                                                  smallest_norm);
}

}  // namespace cairn::nn

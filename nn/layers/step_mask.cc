#include "nn/layers/step_mask.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

// A layer whose output is a mask: no variables, no gradient.
class MaskLayer : public Layer {
 public:
  using Layer::Layer;
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const final { return {}; }
  bool is_mask() const final { return true; }
};

class StepMaskLayer final : public MaskLayer {
 public:
  StepMaskLayer(std::string name, float masked, bool of_vectors)
      : MaskLayer(std::move(name), "StepMask"), masked_(masked), of_vectors_(of_vectors) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (!of_vectors_) return inputs[0];
    return Shape(inputs[0].dims().first(inputs[0].dims().size() - 1));
  }
  bool takes_integers() const override { return true; }
  std::optional<double> masked_value() const override { return masked_; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    Shape output = input.shape;
    if (of_vectors_) output = Shape(output.dims().first(output.dims().size() - 1));
    const int64_t steps = output.num_elements(), width = input.shape.num_elements() / steps;
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakeStepMask({.input = input.WithShape({steps, width}), .masked = masked_}));
    return std::make_unique<ReshapedOp>(kernels::TensorDesc{.shape = output},
                                        std::make_unique<UnaryLayerOp>(std::move(op)));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape& shape = onnx.ShapeOf(inputs[0]);
    const std::string x = onnx.Cast(onnx.ChannelsLast(inputs[0]), DType::kFloat32);
    const std::string differs =
        onnx.Cast(onnx.Add("Not", {onnx.Add("Equal", {x, onnx.Scalar("masked", masked_)})}), DType::kFloat32);
    if (!of_vectors_) return onnx.FromChannelsLast(differs, shape);
    const std::string any =
        onnx.Add("ReduceMax", {differs}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{0}}});
    return onnx.FromChannelsLast(any, Shape(shape.dims().first(shape.dims().size() - 1)));
  }

 private:
  const float masked_;
  const bool of_vectors_;
};

class MaskUnionLayer final : public MaskLayer {
 public:
  explicit MaskUnionLayer(std::string name) : MaskLayer(std::move(name), "MaskUnion") {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    for (const Shape& input : inputs) {
      if (input == inputs[0]) continue;
      return absl::InvalidArgumentError(absl::StrCat("cannot unite masks of ", inputs[0].ToString(), " and ",
                                                     input.ToString(), " time steps"));
    }
    return inputs[0];
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakeBroadcastMerge({.kind = kernels::MergeKind::kMaximum,
                                                  .inputs = {params.inputs.begin(), params.inputs.end()}}));
    return std::make_unique<NaryLayerOp>(std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::vector<std::string> masks;
    for (const OnnxValue input : inputs) masks.push_back(onnx.ChannelsLast(input));
    return onnx.FromChannelsLast(onnx.Add("Max", std::move(masks)), onnx.ShapeOf(inputs[0]));
  }
};

}  // namespace

std::shared_ptr<const Layer> MakeMaskOfIds(const std::string& name, float masked) {
  return std::make_shared<StepMaskLayer>(absl::StrCat(name, "/mask"), masked, /*of_vectors=*/false);
}

std::shared_ptr<const Layer> MakeMaskOfVectors(const std::string& name, float masked) {
  return std::make_shared<StepMaskLayer>(absl::StrCat(name, "/mask"), masked, /*of_vectors=*/true);
}

std::shared_ptr<const Layer> MakeMaskUnion(std::string name) {
  return std::make_shared<MaskUnionLayer>(std::move(name));
}

}  // namespace cairn::nn

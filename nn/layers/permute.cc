// Permute: the axes in another order. RepeatVector: a vector as every step of a sequence.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class PermuteLayer final : public Layer {
 public:
  // `axes`: a permutation of the input's axes, from 1 on; axis 0 is the batch.
  PermuteLayer(std::string name, std::vector<int64_t> axes)
      : Layer(std::move(name), "Permute"), axes_(std::move(axes)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != static_cast<int>(axes_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("dims: [", absl::StrJoin(axes_, ","),
                                                     "] does not fit input ", inputs[0].ToString(), " of ",
                                                     inputs[0].rank(), " axes"));
    }
    Shape output;
    for (const int64_t axis : axes_) output.Append(inputs[0][static_cast<int>(axis) - 1]);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    kernels::TransposeParams transpose = {.input = params.inputs[0], .axes = {0}};
    for (const int64_t axis : axes_) transpose.axes.push_back(static_cast<int>(axis));
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeTranspose(transpose));
    return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    std::vector<int64_t> order = {0};
    order.insert(order.end(), axes_.begin(), axes_.end());
    return onnx.FromChannelsLast(
        onnx.Add("Transpose", {onnx.ChannelsLast(inputs[0])}, {{"perm", std::move(order)}}), output);
  }

 private:
  const std::vector<int64_t> axes_;
};

class RepeatVectorLayer final : public Layer {
 public:
  RepeatVectorLayer(std::string name, int64_t count)
      : Layer(std::move(name), "RepeatVector"), count_(count) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() == 1) return Shape({count_, inputs[0][0]});
    return absl::InvalidArgumentError(absl::StrCat("input ", inputs[0].ToString(), " is not a vector"));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  // A vector is an image of one pixel.
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t examples = input.shape[0], width = input.shape[1];
    CAIRN_ASSIGN_OR_RETURN(
        auto op,
        device.ops().MakeUpsample2D({.input = input.WithShape({examples, 1, 1, width}), .height = count_}));
    return std::make_unique<ReshapedOp>(input.WithShape({examples, count_, width}),
                                        std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const int64_t width = onnx.ShapeOf(inputs[0])[0];
    const std::string step =
        onnx.Add("Reshape", {onnx.ChannelsLast(inputs[0]), onnx.Ints("step", {0, 1, width})});
    return onnx.FromChannelsLast(onnx.Add("Expand", {step, onnx.Ints("steps", {1, count_, 1})}),
                                 {count_, width});
  }

 private:
  const int64_t count_;
};

}  // namespace

std::unique_ptr<Layer> MakePermute(std::string name, ConfigReader& config) {
  std::vector<int64_t> axes = config.Ints("dims"), sorted = axes, expected(axes.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(expected.begin(), expected.end(), 1);
  if (sorted != expected) {
    config.Fail("dims", absl::StrCat("[", absl::StrJoin(axes, ","), "]: expected every axis from 1 to ",
                                     axes.size(), " once (axis 0 is the batch)"));
  }
  return std::make_unique<PermuteLayer>(std::move(name), std::move(axes));
}

std::unique_ptr<Layer> MakeRepeatVector(std::string name, ConfigReader& config) {
  return std::make_unique<RepeatVectorLayer>(std::move(name), config.PositiveInt("n"));
}

}  // namespace cairn::nn

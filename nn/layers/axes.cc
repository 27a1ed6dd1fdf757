#include "nn/layers/axes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

bool IsInOrder(const std::vector<int>& order) {
  return std::is_sorted(order.begin(), order.end());
}

}  // namespace

absl::StatusOr<std::vector<int>> ResolveAxes(const std::vector<int64_t>& axes, const Shape& input) {
  if (axes.empty()) return absl::InvalidArgumentError("axis: expected at least one axis");
  std::vector<int> resolved;
  for (const int64_t axis : axes) {
    const int64_t own = axis < 0 ? axis + input.rank() + 1 : axis;
    if (own < 1 || own > input.rank()) {
      return absl::InvalidArgumentError(absl::StrCat("axis: input ", input.ToString(), " has no axis ", axis,
                                                     " besides the batch (axis 0)"));
    }
    if (!resolved.empty() && own <= resolved.back()) {
      return absl::InvalidArgumentError(absl::StrCat("axis: [", absl::StrJoin(axes, ","), "] of input ",
                                                     input.ToString(), " is not in rising order"));
    }
    resolved.push_back(static_cast<int>(own));
  }
  return resolved;
}

Shape WithLastAxis(const Shape& shape, int64_t extent) {
  Shape changed(shape.dims().first(static_cast<size_t>(shape.rank()) - 1));
  changed.Append(extent);
  return changed;
}

std::vector<int> AxesLast(const std::vector<int>& axes, int rank) {
  std::vector<int> order;
  for (int axis = 0; axis < rank; ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) order.push_back(axis);
  }
  order.insert(order.end(), axes.begin(), axes.end());
  return order;
}

std::vector<int> InverseOrder(const std::vector<int>& order) {
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return inverse;
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeOnLastAxes(
    const kernels::TensorDesc& input, const std::vector<int>& axes, size_t variables,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<LayerOp>>(const kernels::TensorDesc& last)> make,
    kernels::Device& device) {
  const std::vector<int> order = AxesLast(axes, input.shape.rank());
  if (IsInOrder(order)) return make(input);
  CAIRN_ASSIGN_OR_RETURN(auto before, device.ops().MakeTranspose({.input = input, .axes = order}));
  CAIRN_ASSIGN_OR_RETURN(auto op, make(before->output()));
  CAIRN_ASSIGN_OR_RETURN(auto after,
                         device.ops().MakeTranspose({.input = op->output(), .axes = InverseOrder(order)}));
  std::vector<ChainOp::Link> links;
  links.push_back({std::make_unique<UnaryLayerOp>(std::move(before), kReadsNothing)});
  links.push_back({std::move(op), variables});
  links.push_back({std::make_unique<UnaryLayerOp>(std::move(after), kReadsNothing)});
  return ChainOp::Create(std::move(links), device);
}

OnnxValue OnnxOnLastAxes(OnnxValue input, const std::vector<int>& axes,
                         absl::FunctionRef<std::string(const std::string& last)> compute, OnnxBuilder& onnx) {
  const Shape shape = onnx.ShapeOf(input);
  const std::vector<int> order = AxesLast(axes, shape.rank() + 1), inverse = InverseOrder(order);
  const auto transposed = [&](const std::string& name, const std::vector<int>& to) {
    return onnx.Add("Transpose", {name}, {{"perm", std::vector<int64_t>(to.begin(), to.end())}});
  };
  if (IsInOrder(order)) return onnx.FromChannelsLast(compute(onnx.ChannelsLast(input)), shape);
  return onnx.FromChannelsLast(transposed(compute(transposed(onnx.ChannelsLast(input), order)), inverse),
                               shape);
}

}  // namespace cairn::nn

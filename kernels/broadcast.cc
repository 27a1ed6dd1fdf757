#include "kernels/broadcast.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::kernels {
namespace {

// Appends an axis of the output with each input's stride along it. Merges the axis with the output's last
// axis instead if each input is repeated along both or along neither.
void AppendAxis(int64_t extent, absl::Span<const int64_t> strides, Broadcast& broadcast) {
  const int last = broadcast.axes - 1;
  bool alike = last >= 0;
  for (int i = 0; i < broadcast.inputs && alike; ++i)
    alike = broadcast.strides[i][last] == strides[static_cast<size_t>(i)] * extent;
  if (!alike) ++broadcast.axes;
  const int axis = broadcast.axes - 1;
  broadcast.extents[axis] = alike ? broadcast.extents[axis] * extent : extent;
  for (int i = 0; i < broadcast.inputs; ++i) broadcast.strides[i][axis] = strides[static_cast<size_t>(i)];
}

// The extents of the axes in memory: those of the shape or, of a blocked image, [n, blocks, h, w, lanes].
Shape InMemory(const TensorDesc& desc) {
  if (desc.layout == Layout::kRowMajor) return desc.shape;
  const int64_t lanes = BlockOf(desc.layout);
  return {desc.shape[0], (desc.shape[3] + lanes - 1) / lanes, desc.shape[1], desc.shape[2], lanes};
}

bool AreBroadcastAlike(const TensorDesc& a, const TensorDesc& b) {
  return a.layout == b.layout && a.type == b.type &&
         (a.layout == Layout::kRowMajor || a.shape[3] == b.shape[3]);
}

}  // namespace

absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> shapes) {
  Shape output;
  for (int axis = 0; axis < shapes[0].rank(); ++axis) {
    int64_t extent = 1;
    for (const Shape& shape : shapes) {
      if (shape.rank() == shapes[0].rank() && (shape[axis] == 1 || shape[axis] == extent || extent == 1)) {
        if (shape[axis] != 1) extent = shape[axis];
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat("inputs ", shapes[0].ToString(), " and ",
                                                     shape.ToString(), " do not broadcast to one shape"));
    }
    output.Append(extent);
  }
  return output;
}

absl::StatusOr<Broadcast> MakeBroadcast(absl::Span<const TensorDesc> inputs) {
  if (inputs.size() < 2 || inputs.size() > static_cast<size_t>(Broadcast::kMaxInputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot broadcast ", inputs.size(), " inputs, only 2 to ", Broadcast::kMaxInputs));
  }
  std::vector<Shape> shapes;
  for (const TensorDesc& input : inputs) {
    if (AreBroadcastAlike(input, inputs[0]) && input.shape.num_elements() > 0) {
      shapes.push_back(InMemory(input));
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("inputs ", inputs[0].ToString(), " and ", input.ToString(),
                                                   ": expected inputs of one type, and row-major ones, or "
                                                   "images of one layout and as many channels"));
  }
  CAIRN_ASSIGN_OR_RETURN(const Shape output, BroadcastShape(shapes));
  if (output.rank() > Broadcast::kMaxAxes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot broadcast inputs of ", output.rank(),
                                                   " axes, only up to ", Broadcast::kMaxAxes, " axes"));
  }
  Broadcast broadcast;
  broadcast.inputs = static_cast<int>(inputs.size());
  broadcast.elements = output.num_elements();
  for (int axis = 0; axis < output.rank(); ++axis) {
    if (output[axis] == 1) continue;
    std::vector<int64_t> strides;  // [input]
    for (const Shape& shape : shapes) {
      int64_t stride = shape[axis] == 1 ? 0 : 1;
      for (int inner = axis + 1; inner < shape.rank(); ++inner) stride *= shape[inner];
      strides.push_back(stride);
    }
    AppendAxis(output[axis], strides, broadcast);
  }
  if (broadcast.axes == 0) AppendAxis(1, std::vector<int64_t>(inputs.size(), 1), broadcast);
  return broadcast;
}

absl::StatusOr<TensorDesc> OutputDesc(const MergeParams& params) {
  if (params.kind == MergeKind::kSubtract && params.inputs.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a difference of ", params.inputs.size(), " inputs, expected 2"));
  }
  if (params.kind == MergeKind::kSelect && params.inputs.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("a selection of ", params.inputs.size(), " inputs, expected 3"));
  }
  CAIRN_RETURN_IF_ERROR(MakeBroadcast(params.inputs));
  std::vector<Shape> shapes;
  for (const TensorDesc& input : params.inputs) shapes.push_back(input.shape);
  CAIRN_ASSIGN_OR_RETURN(Shape output, BroadcastShape(shapes));
  return TensorDesc{
      .shape = std::move(output), .layout = params.inputs[0].layout, .type = params.inputs[0].type};
}

}  // namespace cairn::kernels

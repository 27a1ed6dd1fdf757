#include "kernels/transpose.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::kernels {
namespace {

// The plan that makes [shape[axes[0]], shape[axes[1]], ...].
absl::StatusOr<TransposePlan> PlanOf(const Shape& shape, const std::vector<int>& axes) {
  std::vector<int64_t> elements(axes.size(), 1);  // [axis of the input] the distance of its indices
  for (int axis = shape.rank() - 1; axis > 0; --axis) {
    elements[static_cast<size_t>(axis) - 1] = elements[static_cast<size_t>(axis)] * shape[axis];
  }
  TransposePlan plan;
  for (const int axis : axes) {
    const int64_t extent = shape[axis], stride = elements[static_cast<size_t>(axis)];
    if (extent == 1) continue;
    const auto last = static_cast<size_t>(std::max(plan.axes - 1, 0));
    if (plan.axes > 0 && plan.strides[last] == stride * extent) {
      plan.extents[last] *= extent;
      plan.strides[last] = stride;
      continue;
    }
    if (plan.axes == TransposePlan::kMaxAxes) {
      return absl::UnimplementedError(absl::StrCat("cannot transpose ", shape.ToString(), " to axes [",
                                                   absl::StrJoin(axes, ","), "]: too many axes"));
    }
    plan.extents[static_cast<size_t>(plan.axes)] = extent;
    plan.strides[static_cast<size_t>(plan.axes)] = stride;
    ++plan.axes;
  }
  const auto last = static_cast<size_t>(std::max(plan.axes - 1, 0));
  if (plan.axes > 0 && plan.strides[last] == 1) {
    plan.chunk = plan.extents[last];
    --plan.axes;
    for (size_t axis = 0; axis < last; ++axis) plan.strides[axis] /= plan.chunk;
  }
  return plan;
}

}  // namespace

absl::StatusOr<TransposePlans> PlanTranspose(const TransposeParams& params) {
  const Shape& input = params.input.shape;
  std::vector<int> sorted = params.axes, inverse(params.axes.size());
  std::sort(sorted.begin(), sorted.end());
  bool valid = static_cast<int>(sorted.size()) == input.rank() && params.input.layout == Layout::kRowMajor &&
               input.num_elements() >= 1;
  for (size_t i = 0; i < sorted.size(); ++i) valid = valid && sorted[i] == static_cast<int>(i);
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat("cannot transpose ", params.input.ToString(), " to axes [",
                                                   absl::StrJoin(params.axes, ","), "]"));
  }
  TransposePlans plans;
  for (size_t i = 0; i < sorted.size(); ++i) {
    plans.output.Append(input[params.axes[i]]);
    inverse[static_cast<size_t>(params.axes[i])] = static_cast<int>(i);
  }
  CAIRN_ASSIGN_OR_RETURN(plans.forward, PlanOf(input, params.axes));
  CAIRN_ASSIGN_OR_RETURN(plans.backward, PlanOf(plans.output, inverse));
  return plans;
}

}  // namespace cairn::kernels

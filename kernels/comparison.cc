#include "kernels/comparison.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::kernels {

absl::StatusOr<ComparisonPlan> PlanComparison(const ComparisonParams& params) {
  if (params.inputs.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a comparison of ", params.inputs.size(), " inputs, expected 2"));
  }
  std::array<TensorDesc, 2> floats;
  for (size_t i = 0; i < floats.size(); ++i) {
    if (params.inputs[i].layout != Layout::kRowMajor) {
      return absl::InvalidArgumentError(
          absl::StrCat("a comparison of ", params.inputs[i].ToString(), ": expected row-major"));
    }
    floats[i] = {.shape = params.inputs[i].shape};
  }
  CAIRN_ASSIGN_OR_RETURN(const Broadcast broadcast, MakeBroadcast(floats));
  CAIRN_ASSIGN_OR_RETURN(Shape output,
                         BroadcastShape(std::array<Shape, 2>{floats[0].shape, floats[1].shape}));
  return ComparisonPlan{.broadcast = broadcast,
                        .output = {.shape = std::move(output)},
                        .integers = IsInteger(params.inputs[0].type) && IsInteger(params.inputs[1].type)};
}

}  // namespace cairn::kernels

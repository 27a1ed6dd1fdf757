#include "common/core/constraint.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {

absl::Status Constraint::Check(const Shape& shape) const {
  if (non_negative) return absl::OkStatus();
  const auto refuse = [&](const auto&... fault) {
    return absl::InvalidArgumentError(absl::StrCat("constraint ", ToString(), ": ", fault...));
  };
  if (axes.empty()) return refuse("there are no axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= shape.rank()) {
      return refuse("shape ", shape.ToString(), " has no axis ", axes[i]);
    }
    if (i > 0 && axes[i] <= axes[i - 1]) return refuse("its axes are not in ascending order");
  }
  if (!(min_norm >= 0 && min_norm <= max_norm && std::isfinite(max_norm))) {
    return refuse("norms must be finite, with 0 <= minimum <= maximum");
  }
  if (!(rate >= 0 && rate <= 1)) return refuse("the rate is not in [0, 1]");
  return absl::OkStatus();
}

std::string Constraint::ToString() const {
  if (non_negative) return "non-negative";
  return absl::StrCat("norms over axes [", absl::StrJoin(axes, ", "), "] in [", min_norm, ", ", max_norm,
                      "] at rate ", rate);
}

}  // namespace cairn

#include "optim/store/update_plan.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::optim {
namespace {

// [group] The group's variant of the optimizer, null if the group has no hyperparameters of its own. Equal groups share
// a variant.
using Variants = std::vector<std::shared_ptr<const Optimizer>>;

absl::StatusOr<Variants> VariantsOf(const Optimizer& optimizer, absl::Span<const GroupSettings> groups) {
  Variants variants(groups.size());
  std::map<std::map<std::string, double>, std::shared_ptr<const Optimizer>> made;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].hyperparameters.empty()) continue;
    std::shared_ptr<const Optimizer>& variant = made[groups[group].hyperparameters];
    if (variant == nullptr) {
      auto fresh = MakeVariant(optimizer, groups[group].hyperparameters);
      if (!fresh.ok()) return Annotate(fresh.status(), absl::StrCat("group ", group));
      variant = *std::move(fresh);
    }
    variants[group] = variant;
  }
  return variants;
}

// Whether both slices can be updated as one.
bool HaveSameRule(const UpdateSlice& a, const UpdateSlice& b) {
  if (a.takes_norms() || b.takes_norms()) return false;
  return (a.constraint != nullptr) == (b.constraint != nullptr) &&
         a.moving_average_momentum == b.moving_average_momentum && a.learning_rate == b.learning_rate &&
         a.untouched == b.untouched && a.optimizer == b.optimizer && a.skipped == b.skipped;
}

}  // namespace

absl::StatusOr<UpdatePlan> MakePlan(const GroupedSlices& grouped, absl::Span<const GroupSettings> groups,
                                    const SkippedUpdates& skipped) {
  UpdatePlan plan;
  Variants variants(groups.size());
  if (grouped.optimizer != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(variants, VariantsOf(*grouped.optimizer, groups));
  }
  const bool one_by_one = grouped.optimizer != nullptr && !grouped.optimizer->norms().empty();
  for (size_t i = 0; i < grouped.slices.size(); ++i) {
    const net::Slice& slice = grouped.slices[i];
    const int group = i < grouped.group_of_slice.size() ? grouped.group_of_slice[i] : -1;
    UpdateSlice next = {.begin = slice.offset,
                        .end = slice.offset + slice.elements(),
                        .moving_average_momentum = slice.moving_average_momentum,
                        .band = net::RowsPerBand(slice.shape) * slice.shape.row_elements(),
                        .skipped = skipped.of_group(group),
                        .constraint = slice.constraint.has_value() ? &*slice.constraint : nullptr};
    if (next.takes_norms()) {
      next.shape = {slice.row_end - slice.row_begin};
      for (int axis = 1; axis < slice.shape.rank(); ++axis) next.shape.Append(slice.shape[axis]);
    }
    if (group >= 0 && group < static_cast<int>(groups.size())) {
      const GroupSettings& settings = groups[static_cast<size_t>(group)];
      next.learning_rate = settings.learning_rate;
      next.untouched = settings.untouched;
      next.optimizer = variants[static_cast<size_t>(group)].get();
    }
    if (!one_by_one && !plan.slices.empty() && HaveSameRule(plan.slices.back(), next)) {
      plan.slices.back().end = next.end;
    } else {
      plan.slices.push_back(next);
    }
  }
  plan.variants = std::move(variants);
  return plan;
}

absl::Status CheckGroupSettings(const Optimizer& optimizer, absl::Span<const GroupSettings> groups) {
  return VariantsOf(optimizer, groups).status();
}

}  // namespace cairn::optim

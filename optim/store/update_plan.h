// Which rule, learning rate and count of updates each slice of a store has, after the settings of the groups.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/cluster/placement.h"
#include "optim/optimizer.h"
#include "optim/store/group_settings.h"
#include "optim/update.h"

namespace cairn::optim {

struct UpdatePlan {
  std::vector<UpdateSlice> slices;
  std::vector<std::shared_ptr<const Optimizer>> variants;  // to which the slices refer
};

// Borrowed for the duration of a call.
struct GroupedSlices {
  absl::Span<const net::Slice> slices;
  const Optimizer* optimizer;            // null: nothing is trained
  absl::Span<const int> group_of_slice;  // [slice] -1: none; empty: there are no groups
};

// Adjacent slices with the same rule are joined, and are updated together, unless the optimizer or a constraint needs
// each variable's norms. The plan borrows the constraints of the slices. INVALID_ARGUMENT as CheckGroupSettings().
absl::StatusOr<UpdatePlan> MakePlan(const GroupedSlices& grouped, absl::Span<const GroupSettings> groups,
                                    const SkippedUpdates& skipped);

// INVALID_ARGUMENT, naming the group and the hyperparameter, if the optimizer cannot have these settings:
// MakeVariant().
absl::Status CheckGroupSettings(const Optimizer& optimizer, absl::Span<const GroupSettings> groups);

}  // namespace cairn::optim

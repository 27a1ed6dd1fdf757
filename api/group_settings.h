// Settings of groups of variables on their way to the servers. Pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"

namespace cairn::api {

bool SameSettings(const v1::GroupSettings& a, const v1::GroupSettings& b);

// INVALID_ARGUMENT, naming the group, for settings that the servers would refuse. `groups`: one entry for each group.
absl::Status CheckGroups(const v1::Job& job, const std::vector<v1::GroupSettings>& groups);

// One entry for consecutive groups with equal settings. INVALID_ARGUMENT if they do not fit the header of a push.
absl::StatusOr<std::vector<v1::GroupSettings>> JoinEqual(const std::vector<v1::GroupSettings>& groups);

}  // namespace cairn::api

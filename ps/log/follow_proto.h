// Converts the round log, and the servers' reports, to and from the messages between ps/0 and its
// followers (follow.proto).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/follow.pb.h"
#include "ps/log/log_entry.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

v1::Marker ToProto(const Marker& marker);
v1::ConfigChange ToProto(const ConfigChange& config_change);
v1::Sums ToProto(const Sums& sums);
// INVALID_ARGUMENT for a negative sum of squares.
absl::StatusOr<Sums> FromProto(const v1::Sums& proto);
v1::Decision ToProto(const LogEntry& entry);
// INVALID_ARGUMENT for an unknown kind of decision, and for an impossible gradient, version, marker or
// learning rate.
absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision);
// INVALID_ARGUMENT if the token is too long.
absl::StatusOr<Marker> FromProto(const v1::Marker& proto);
// Fails as CheckConfigChange() does, but does not check whether the job has a schedule.
absl::StatusOr<ConfigChange> FromProto(const v1::ConfigChange& proto);

}  // namespace cairn::ps

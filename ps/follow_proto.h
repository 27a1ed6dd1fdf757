// The round log and what servers report of it, as messages between ps/0 and its followers (follow.proto).
#pragma once

#include "absl/status/statusor.h"
#include "cairn/v1/follow.pb.h"
#include "ps/sequencer.h"

namespace cairn::ps {

v1::StagedGradient ToProto(const Gradient& gradient);
// As CheckGradient().
absl::StatusOr<Gradient> FromProto(const v1::StagedGradient& proto);
v1::PushKey ToProto(const PushKey& key);
PushKey FromProto(const v1::PushKey& proto);
v1::Amendment ToProto(const Amendment& amendment);
v1::Sums ToProto(const Sums& sums);
Sums FromProto(const v1::Sums& proto);
v1::Decision ToProto(const LogEntry& entry);
// INVALID_ARGUMENT for a decision of no known kind, and for one about a gradient or a version that cannot be.
absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision);

}  // namespace cairn::ps

// The round log and what servers report of it, as messages between ps/0 and its followers (follow.proto).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/follow.pb.h"
#include "ps/sequencer.h"

namespace cairn::ps {

class Shard;

v1::StagedGradient ToProto(const Gradient& gradient);
// As CheckGradient().
absl::StatusOr<Gradient> FromProto(const v1::StagedGradient& proto);
v1::PushKey ToProto(const PushKey& key);
PushKey FromProto(const v1::PushKey& proto);
v1::Amendment ToProto(const Amendment& amendment);
v1::Sums ToProto(const Sums& sums);
// INVALID_ARGUMENT for a sum of squares below 0.
absl::StatusOr<Sums> FromProto(const v1::Sums& proto);
v1::Decision ToProto(const LogEntry& entry);
// INVALID_ARGUMENT for a decision of no known kind, and for one about a gradient, a version, a mark or a
// learning rate that cannot be.
absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision);
// INVALID_ARGUMENT for a name that is too long.
absl::StatusOr<Mark> FromProto(const v1::Mark& proto);
// As CheckAmendment(), but for a schedule.
absl::StatusOr<Amendment> FromProto(const v1::Amendment& proto);

// What a follower does with a decision that comes from its leader: queues it, for Flush(). One that cannot be
// fails the job on this server. CANCELLED, without effect, for one out of order: it is from a leader that is
// not ours, and the next subscription tells.
absl::Status Follow(const v1::Decision& decision, Shard& shard);

}  // namespace cairn::ps

// A follower's part of the round log: entries that arrive from the sequencer.
#pragma once

#include "absl/status/status.h"
#include "cairn/v1/follow.pb.h"
#include "ps/shard/shard.h"

namespace cairn::ps {

// Handles a decision that a follower receives from the sequencer: queues it for Flush(). An invalid decision
// fails the job on this server. CANCELLED, without effect, for a decision out of order: its sender is no
// longer the job's sequencer, and the next subscription will find the new one.
absl::Status Follow(const v1::Decision& decision, Shard& shard);

}  // namespace cairn::ps

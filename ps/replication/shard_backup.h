// The backup of a shard: what a primary's ShardFeed has sent becomes the input of a shard like the primary's.
// The inputs are queued: Shard::Flush() executes them.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "cairn/v1/replicate.pb.h"
#include "common/memory/aligned_buffer.h"
#include "ps/shard/shard.h"

namespace cairn::ps {

// INVALID_ARGUMENT for an impossible entry, one that LogValidator refuses, or one whose mean does not fit the
// shard. FAILED_PRECONDITION for an entry out of order. `mean`: null if the entry has no mean, or its
// contributors have no examples.
absl::Status AppendReplicated(const v1::ReplicatedEntry& replicated,
                              std::shared_ptr<const AlignedBuffer> mean, Shard& shard,
                              ReceivedTables means_of_tables = {});
// INVALID_ARGUMENT if the number of values differs from the number of the shard's values.
absl::Status WriteReplicated(std::shared_ptr<const AlignedBuffer> values, ReceivedTables tables,
                             Shard& shard);

}  // namespace cairn::ps

// Feeds the backup of a shard: sends the state of the shard on each stream of a replicator, then every effect
// of its log, and lets answers wait until the backup has what they reveal. The backup's side is shard_backup.h.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "ps/replication/replicator.h"
#include "ps/shard/shard.h"

namespace cairn::ps {

class ShardFeed final : public EffectSink {
 public:
  // Both must outlive the feed.
  ShardFeed(Shard& shard, Replicator& replicator) : shard_(shard), replicator_(replicator) {}

  // Sends the whole state, between two updates.
  void SendState();

  bool WantsEntries() const override { return replicator_.wants(Replicator::Component::kShard); }
  void OnEntry(const LogEntry& entry, const UpdateMean* mean) override;
  void OnMean(int64_t version, const std::shared_ptr<const AlignedBuffer>& mean, int64_t begin,
              int64_t end) override;
  void OnWrite(const optim::Values& values, absl::Span<const TableState> tables) override;
  void WhenReceived(Callback then) override { replicator_.WhenReplicated(std::move(then)); }

 private:
  Shard& shard_;
  Replicator& replicator_;
};

}  // namespace cairn::ps

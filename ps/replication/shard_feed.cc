#include "ps/replication/shard_feed.h"

#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

constexpr auto kShard = Replicator::Component::kShard;

}  // namespace

void ShardFeed::SendState() {
  shard_.Capture([this](Shard::State state) {
    ReplicationItem item = {.body = {}, .floats = std::move(state.floats), .state = true};
    *item.body.mutable_shard() = std::move(state.facts);
    replicator_.SendState(kShard, std::move(item));
  });
}

void ShardFeed::OnEntry(const LogEntry& entry, const UpdateMean* mean) {
  if (!WantsEntries()) return;
  ReplicationItem item;
  v1::ReplicatedEntry& replicated = *item.body.mutable_entry();
  *replicated.mutable_decision() = ToProto(entry);
  replicated.set_mean(mean != nullptr);
  if (mean != nullptr && mean->data != nullptr) {
    replicated.set_examples(true);
    if (mean->data->size() > 0) item.floats = {mean->data};
  }
  replicator_.Send(kShard, std::move(item));
}

void ShardFeed::OnWrite(const optim::Values& values) {
  ReplicationItem item;
  item.body.set_written(values.version);
  item.floats = {values.data};
  replicator_.Send(kShard, std::move(item));
}

}  // namespace cairn::ps

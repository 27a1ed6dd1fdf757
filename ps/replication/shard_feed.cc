#include "ps/replication/shard_feed.h"

#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

constexpr auto kShard = Replicator::Component::kShard;

}  // namespace

void ShardFeed::SendState() {
  shard_.Capture([this](Shard::State state) {
    ReplicationItem item = {
        .body = {}, .floats = std::move(state.floats), .state = true, .tables = std::move(state.tables)};
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
  if (mean != nullptr) {
    bool examples = mean->data != nullptr;
    if (examples && mean->data->size() > 0) item.floats = {mean->data};
    for (const TableMean& table : mean->others) {
      TableState& sent = item.tables.emplace_back();
      if (table == nullptr) continue;
      examples = true;
      sent.push_back(table);
    }
    replicated.set_examples(examples);
    item.mean_in_runs = mean->sent;
  }
  replicator_.Send(kShard, std::move(item));
}

void ShardFeed::OnMean(int64_t version, const std::shared_ptr<const AlignedBuffer>& mean, int64_t begin,
                       int64_t end) {
  replicator_.SendMean(kShard, {.version = version, .mean = mean, .begin = begin, .end = end});
}

void ShardFeed::OnWrite(const optim::Values& values, absl::Span<const TableState> tables) {
  ReplicationItem item;
  item.body.set_written(values.version);
  item.floats = {values.data};
  item.tables.assign(tables.begin(), tables.end());
  replicator_.Send(kShard, std::move(item));
}

}  // namespace cairn::ps

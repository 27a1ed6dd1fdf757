// Replication of a shard: what the primary sends and the backup executes (shard.h).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"
#include "ps/shard/shard.h"

namespace cairn::ps {

void Shard::WhenReplicated(Reply reply) {
  if (Replicator* const replicator = replicator_; replicator != nullptr) {
    replicator->WhenReplicated(std::move(reply));
  } else {
    reply(absl::OkStatus());
  }
}

void Shard::ReportExecuted(int64_t index) {
  SequencerPort* const port = port_;
  if (port == nullptr) return;
  // Entries that the backup lacks must stay in the log, because it asks for them after its promotion.
  WhenReplicated([port, index](const absl::Status& lost) {
    if (lost.ok()) port->ReportExecuted(index);
  });
}

Shard::UpdateMean Shard::MeanOf(int64_t version, absl::Span<const optim::ContributedGradient> gradients,
                                absl::Span<const GradientView> views) {
  int counted = 0;
  GradientView only;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].examples() == 0) continue;
    ++counted;
    only = views[i];
  }
  // A gradient in the client's memory is copied, because the backup may receive it only after its push has
  // been answered.
  if (counted <= 1 && (only.none() || only.buffer() != nullptr)) return {version, only.buffer()};
  std::shared_ptr<AlignedBuffer> mean = store_.pool().Acquire();
  WriteMean(gradients, store_.size(), mean->data());
  return {version, std::move(mean)};
}

void Shard::SendEntry(const LogEntry& entry, bool with_mean) {
  Replicator* const replicator = replicator_;
  if (replicator == nullptr || !replicator->wants(Replicator::Component::kShard)) return;
  ReplicationItem item;
  v1::ReplicatedEntry& replicated = *item.body.mutable_entry();
  *replicated.mutable_decision() = ToProto(entry);
  replicated.set_mean(with_mean);
  if (with_mean && mean_->data != nullptr) {
    replicated.set_examples(true);
    if (store_.size() > 0) item.floats = {mean_->data};
  }
  replicator->Send(Replicator::Component::kShard, std::move(item));
}

void Shard::Capture() {
  {
    MutexLock lock(mutex_);
    queue_.push_back([this](Replies&) {
      if (measuring_) {
        capture_wanted_ = true;
      } else {
        SendState();
      }
    });
  }
  ExecuteQueue();
}

void Shard::SendState() {
  ReplicationItem item;
  item.state = true;
  v1::ReplicatedShard& state = *item.body.mutable_shard();
  const optim::Values values = store_.current();
  state.set_next_index(executed_ + 1);
  state.set_version(values.version);
  state.set_final_version(final_version_);
  if (const auto rate = store_.changed_learning_rate()) state.set_learning_rate(*rate);
  item.floats = {values.data};
  if (auto slots = store_.CopySlotsBeyondBudget(); slots != nullptr) item.floats.push_back(std::move(slots));
  {
    MutexLock lock(mutex_);
    ledger_.Save(*state.mutable_ledger());
    for (const auto& [key, staged] : staged_) {
      if (!staged.applied_staleness.has_value()) continue;
      v1::DeferredPush& deferred = *state.add_deferred();
      *deferred.mutable_gradient() = ToProto(staged.gradient);
      deferred.set_staleness(*staged.applied_staleness);
    }
    for (const std::string& token : markers_.tokens()) state.add_markers(token);
    state.set_duplicates(duplicates_);
    state.set_rejected(rejected_);
  }
  Replicator* const replicator = replicator_;
  CAIRN_CHECK(replicator != nullptr);
  replicator->SendState(Replicator::Component::kShard, std::move(item));
}

absl::Status Shard::RestoreReplica(const v1::ReplicatedShard& replicated,
                                   std::shared_ptr<const AlignedBuffer> state) {
  if (replicated.next_index() < 1 || replicated.next_index() > kMaxCounted || replicated.version() < 0 ||
      replicated.version() > kMaxCounted) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated state cannot be at entry ",
                                                   replicated.next_index(), ", version ",
                                                   replicated.version()));
  }
  const int64_t size = state == nullptr ? 0 : state->size();
  if (size != store_.state_pool().buffer_size()) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated state has ", size, " values, expected ",
                                                   store_.state_pool().buffer_size()));
  }
  if (replicated.duplicates() < 0 || replicated.rejected() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated state cannot have ", replicated.duplicates(),
                                                   " duplicates, ", replicated.rejected(),
                                                   " rejected pushes"));
  }
  v1::ConfigChange changed;
  if (replicated.has_learning_rate()) changed.set_learning_rate(replicated.learning_rate());
  CAIRN_RETURN_IF_ERROR(FromProto(changed).status());
  std::vector<std::pair<Gradient, int64_t>> deferred;
  for (const v1::DeferredPush& push : replicated.deferred()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(push.gradient()));
    deferred.emplace_back(gradient, push.staleness());
  }
  MutexLock lock(mutex_);
  for (const auto& [gradient, staleness] : deferred)
    CAIRN_RETURN_IF_ERROR(entries_.CheckWorker(gradient.key.worker));
  for (const v1::LedgerEntry& entry : replicated.ledger())
    CAIRN_RETURN_IF_ERROR(entries_.CheckWorker(entry.worker()));
  next_index_ = replicated.next_index();
  entries_.GoOnFrom(replicated.version());
  ledger_.Restore(replicated.ledger());
  for (const auto& [gradient, staleness] : deferred) {
    staged_[gradient.key].gradient = gradient;
    staged_[gradient.key].applied_staleness = staleness;
    ledger_.Stage(gradient.key);
  }
  for (const std::string& token : replicated.markers()) markers_.KeepNothing(token);
  duplicates_ = replicated.duplicates();
  rejected_ = replicated.rejected();
  queue_.push_back([this, version = replicated.version(), final_version = replicated.final_version(),
                    has_rate = replicated.has_learning_rate(), rate = replicated.learning_rate(),
                    executed = replicated.next_index() - 1, state = std::move(state)](Replies&) {
    store_.Restore(version, state.get());
    if (has_rate) store_.SetLearningRate(rate);
    final_version_ = final_version;
    executed_ = executed;
  });
  return absl::OkStatus();
}

absl::Status Shard::AppendReplicated(const LogEntry& entry, const v1::ReplicatedEntry& replicated,
                                     std::shared_ptr<const AlignedBuffer> mean) {
  if (replicated.mean() && replicated.examples() && mean == nullptr && store_.size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("entry ", entry.index, " arrived without its mean"));
  }
  if (mean != nullptr) CAIRN_RETURN_IF_ERROR(CheckValues(mean.get()));
  MutexLock lock(mutex_);
  if (entry.index != next_index_) {
    return absl::FailedPreconditionError(
        absl::StrCat("entry ", entry.index, " of the log arrived, but entry ", next_index_, " comes next"));
  }
  CAIRN_RETURN_IF_ERROR(entries_.Admit(entry));
  ++next_index_;
  PendingEntry pending = {.entry = entry};
  if (replicated.mean()) {
    // The mean of a shard without elements is an empty buffer.
    if (mean == nullptr && replicated.examples()) mean = store_.pool().Acquire();
    pending.mean = UpdateMean{VersionOf(entry), std::move(mean)};
  }
  queue_.push_back(std::move(pending));
  return absl::OkStatus();
}

absl::Status Shard::WriteReplicated(std::shared_ptr<const AlignedBuffer> values) {
  CAIRN_RETURN_IF_ERROR(CheckValues(values.get()));
  MutexLock lock(mutex_);
  queue_.push_back([this, values = std::move(values)](Replies&) {
    const optim::VariableStore::Run everything = {0, store_.size()};
    if (values != nullptr) store_.Write(*values, {&everything, 1});
  });
  return absl::OkStatus();
}

absl::Status Shard::CheckValues(const AlignedBuffer* values) const {
  const int64_t size = values == nullptr ? 0 : values->size();
  if (size == store_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(size, " replicated values do not fit a server that has ", store_.size()));
}

void Shard::Promote() {
  MutexLock lock(mutex_);
  promoted_ = true;
}

std::vector<PushKey> Shard::MissingFor(const LogEntry& entry) const {
  std::vector<PushKey> missing;
  if (mean_.has_value() && mean_->version == VersionOf(entry)) return missing;
  for (const Gradient& gradient : ContributorsOf(entry)) {
    if (staged_.count(gradient.key) == 0) missing.push_back(gradient.key);
  }
  return missing;
}

std::optional<std::variant<Shard::PendingEntry, Shard::PendingTask>> Shard::Next() {
  if (queue_.empty()) return std::nullopt;
  if (auto* pending = std::get_if<PendingEntry>(&queue_.front()); pending != nullptr && promoted_) {
    missing_ = MissingFor(pending->entry);
    if (!missing_.empty() && failure_.ok()) return std::nullopt;
  }
  std::variant<PendingEntry, PendingTask> next = std::move(queue_.front());
  queue_.pop_front();
  return next;
}

std::vector<PushKey> Shard::Missing() const {
  MutexLock lock(mutex_);
  return missing_;
}

int64_t Shard::WaitsAt() const {
  MutexLock lock(mutex_);
  if (missing_.empty() || queue_.empty()) return 0;
  const auto* pending = std::get_if<PendingEntry>(&queue_.front());
  return pending == nullptr ? 0 : pending->entry.index;
}

}  // namespace cairn::ps

// Replication of a sequencer: its whole state, and the events that its backup receives (sequencer.h).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/follow_proto.h"
#include "ps/sequencer.h"

namespace cairn::ps {
namespace {

// Upper bound on entries: no job reaches it, and it is far from overflow.
constexpr int64_t kLastIndex = int64_t{1} << 60;

// A decision without an index in the log.
v1::Decision Save(const LogEntry::What& what) {
  return ToProto(LogEntry{.index = 0, .what = what});
}

}  // namespace

void Sequencer::ReplicateTo(Replicator* replicator, int own_server) {
  MutexLock lock(mutex_);
  replicator_ = replicator;
  own_server_ = own_server;
}

bool Sequencer::replicated() const {
  return replicator_ != nullptr && replicator_->wants(Replicator::Component::kSequencer);
}

void Sequencer::Replicate(v1::SequencerEvent event) {
  ReplicationItem item;
  *item.body.mutable_event() = std::move(event);
  replicator_->Send(Replicator::Component::kSequencer, std::move(item));
}

void Sequencer::Capture() {
  MutexLock lock(mutex_);
  if (replicator_ == nullptr) return;
  ReplicationItem item;
  v1::ReplicatedSequencer& state = *item.body.mutable_sequencer();
  *state.mutable_policy() = policy_->Save();
  state.mutable_positions()->insert(positions_.begin(), positions_.end());
  for (const auto& [key, partial] : partials_) {
    v1::ReplicatedPartial& saved = *state.add_partials();
    *saved.mutable_gradient() = ToProto(partial.gradient);
    saved.mutable_servers()->Add(partial.servers.begin(), partial.servers.end());
  }
  for (const auto& [worker, entry] : workers_) {
    v1::ReplicatedWorker& saved = *state.add_workers();
    saved.set_worker(worker);
    saved.set_incarnation(entry.incarnation);
    saved.set_member(entry.member);
    saved.set_last_step(entry.last_step);
    saved.set_last_config_change(entry.last_config_change);
  }
  for (const Server& server : servers_) state.add_executed(server.executed);
  for (const LogEntry& entry : log_) *state.add_log() = ToProto(entry);
  state.set_next_index(next_index_);
  if (measuring_.has_value()) {
    v1::ReplicatedMeasuring& saved = *state.mutable_measuring();
    *saved.mutable_apply() = Save(LogEntry::What(measuring_->apply)).apply();
    saved.set_norms(static_cast<int64_t>(measuring_->norms));
    saved.set_index(measuring_->index);
    for (const auto& [server, sums] : measuring_->sums) (*saved.mutable_sums())[server] = ToProto(sums);
  }
  for (const LogEntry::What& what : behind_) *state.add_behind() = Save(what);
  replicator_->SendState(Replicator::Component::kSequencer, std::move(item));
}

absl::Status Sequencer::RestoreReplica(const v1::ReplicatedSequencer& replicated) {
  std::map<PushKey, Partial> partials;
  for (const v1::ReplicatedPartial& saved : replicated.partials()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(saved.gradient()));
    partials[gradient.key] = {gradient, {saved.servers().begin(), saved.servers().end()}};
  }
  std::deque<LogEntry> log;
  for (const v1::Decision& decision : replicated.log()) {
    CAIRN_ASSIGN_OR_RETURN(LogEntry entry, FromProto(decision));
    if (entry.index != replicated.next_index() - replicated.log_size() + static_cast<int64_t>(log.size())) {
      return absl::InvalidArgumentError(absl::StrCat("the replicated log has a gap at entry ", entry.index));
    }
    log.push_back(std::move(entry));
  }
  std::optional<Measuring> measuring;
  if (replicated.has_measuring()) {
    v1::Decision decision;
    *decision.mutable_apply() = replicated.measuring().apply();
    CAIRN_ASSIGN_OR_RETURN(LogEntry entry, FromProto(decision));
    measuring.emplace(std::get<Apply>(std::move(entry.what)));
    measuring->norms = static_cast<size_t>(replicated.measuring().norms());
    measuring->index = replicated.measuring().index();
    for (const auto& [server, sums] : replicated.measuring().sums()) {
      CAIRN_ASSIGN_OR_RETURN(measuring->sums[server], FromProto(sums));
    }
  }
  std::deque<LogEntry::What> behind;
  for (const v1::Decision& decision : replicated.behind()) {
    CAIRN_ASSIGN_OR_RETURN(LogEntry entry, FromProto(decision));
    behind.push_back(std::move(entry.what));
  }
  MutexLock lock(mutex_);
  bool fits = replicated.executed_size() == static_cast<int>(servers_.size()) &&
              replicated.next_index() >= 1 && replicated.next_index() <= kLastIndex;
  const auto knows = [this](int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return server >= 0 && server < static_cast<int>(servers_.size());
  };
  for (const int64_t executed : replicated.executed())
    fits &= executed >= 0 && executed < replicated.next_index();
  for (const auto& [key, partial] : partials)
    fits &= std::all_of(partial.servers.begin(), partial.servers.end(), knows);
  if (measuring.has_value()) {
    fits &= measuring->norms < norms_.size() && measuring->index == replicated.next_index() - 1 &&
            measuring->sums.size() < servers_.size();
    for (const auto& [server, sums] : measuring->sums) fits &= knows(server);
  }
  fits &= measuring.has_value() || behind.empty();
  if (!fits) return absl::InvalidArgumentError("the replicated log does not fit the job");
  CAIRN_RETURN_IF_ERROR(Annotate(policy_->Load(replicated.policy()), "replicated"));
  positions_ = {replicated.positions().begin(), replicated.positions().end()};
  partials_ = std::move(partials);
  workers_.clear();
  for (const v1::ReplicatedWorker& saved : replicated.workers()) {
    workers_[saved.worker()] = {.incarnation = saved.incarnation(),
                                .member = saved.member(),
                                .last_step = saved.last_step(),
                                .last_config_change = saved.last_config_change()};
  }
  for (size_t i = 0; i < servers_.size(); ++i)
    servers_[i].executed = replicated.executed(static_cast<int>(i));
  log_ = std::move(log);
  next_index_ = replicated.next_index();
  released_ = next_index_ - 1;
  measuring_ = std::move(measuring);
  behind_ = std::move(behind);
  return absl::OkStatus();
}

absl::Status Sequencer::Replay(const v1::SequencerEvent& event) {
  const auto known = [this](int server) {
    MutexLock lock(mutex_);
    return server >= 0 && server < static_cast<int>(servers_.size());
  };
  switch (event.what_case()) {
    case v1::SequencerEvent::kJoin:
      Join(event.join().worker(), event.join().incarnation());
      return absl::OkStatus();
    case v1::SequencerEvent::kLeave:
      Leave(event.leave().worker(), event.leave().incarnation());
      return absl::OkStatus();
    case v1::SequencerEvent::kStaged: {
      CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(event.staged().gradient()));
      if (!known(event.staged().server())) break;
      OnStaged(event.staged().server(), gradient);
      return absl::OkStatus();
    }
    case v1::SequencerEvent::kSums: {
      CAIRN_ASSIGN_OR_RETURN(Sums sums, FromProto(event.sums().sums()));
      if (!known(event.sums().server())) break;
      OnSums(event.sums().server(), std::move(sums));
      return absl::OkStatus();
    }
    case v1::SequencerEvent::kExecuted:
      if (!known(event.executed().server())) break;
      OnExecuted(event.executed().server(), event.executed().index());
      return absl::OkStatus();
    case v1::SequencerEvent::kMarker: {
      CAIRN_ASSIGN_OR_RETURN(const Marker marker, FromProto(event.marker()));
      return WriteMarker(marker).status();
    }
    case v1::SequencerEvent::kConfigChange: {
      CAIRN_ASSIGN_OR_RETURN(const ConfigChange config_change,
                             FromProto(event.config_change().config_change()));
      return ChangeConfig(event.config_change().incarnation(), event.config_change().number(), config_change);
    }
    default:
      break;
  }
  return absl::InvalidArgumentError(
      "a replicated event has an unknown kind, or names a server that the job lacks");
}

}  // namespace cairn::ps

#include "ps/sequencer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "ps/follow_proto.h"

namespace cairn::ps {
namespace {

// The time limit of CheckMeasuring(): far longer than a pass over memory, and far longer than gRPC takes to
// detect a dead peer and to reconnect.
constexpr auto kLongestMeasuring = std::chrono::seconds(60);
constexpr int kChief = 0;

// Flushes the last server first: the shard of ps/0 executes its entries in this thread, the others only send.
void FlushAll(absl::Span<const std::shared_ptr<LogSink>> sinks) {
  for (auto sink = sinks.rbegin(); sink != sinks.rend(); ++sink) (*sink)->Flush();
}

}  // namespace

Sequencer::Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers, absl::Span<const Norms> norms,
                     Progress resumed)
    : norms_(norms.begin(), norms.end()),
      counters_before_(resumed.counters),
      policy_(std::move(policy)),
      positions_(std::move(resumed.positions)),
      servers_(static_cast<size_t>(num_servers)) {}

void Sequencer::Join(int worker, uint64_t incarnation) {
  Change change;
  {
    MutexLock lock(mutex_);
    Worker& known = workers_[worker];
    if (incarnation <= known.incarnation) return;  // overtaken by a later incarnation
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_join()->set_worker(worker);
      event.mutable_join()->set_incarnation(incarnation);
      Replicate(std::move(event));
    }
    DropPartials(worker, Refuse::Reason::kOldIncarnation);
    known = {.incarnation = incarnation, .member = true};
    Decide(policy_->OnJoin(worker, incarnation));
    change = Changed();
  }
  Deliver(change);
}

void Sequencer::Leave(int worker, uint64_t incarnation) {
  Change change;
  {
    MutexLock lock(mutex_);
    Worker& known = workers_[worker];
    if (incarnation < known.incarnation) return;
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_leave()->set_worker(worker);
      event.mutable_leave()->set_incarnation(incarnation);
      Replicate(std::move(event));
    }
    known.member = false;
    DropPartials(worker, Refuse::Reason::kNotAMember);
    Decide(policy_->OnLeave(worker, incarnation));
    change = Changed();
  }
  Deliver(change);
}

absl::StatusOr<Progress> Sequencer::WriteMarker(const Marker& marker) {
  Progress progress;
  Change change;
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(CheckLogHasRoom());
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_marker()->set_token(marker.token);
      event.mutable_marker()->set_snapshot(marker.snapshot);
      Replicate(std::move(event));
    }
    Append(marker);
    progress = ProgressNow();
    change = Changed();
  }
  Deliver(change);
  return progress;
}

absl::Status Sequencer::CheckLogHasRoom() const {
  const size_t entries = log_.size() + behind_.size();
  if (entries < kMaxUnexecuted) return absl::OkStatus();
  const auto last = std::min_element(servers_.begin(), servers_.end(), [](const Server& a, const Server& b) {
    return a.executed < b.executed;
  });
  return absl::ResourceExhaustedError(absl::StrCat("the log holds ", entries, " entries, at most ",
                                                   kMaxUnexecuted, ", that ps/", last - servers_.begin(),
                                                   " has not executed"));
}

// Counts all decisions: each is in the log or will precede every later entry.
Progress Sequencer::ProgressNow() const {
  Progress progress = {.version = policy_->version(), .counters = counters_before_, .positions = positions_};
  progress.counters.Add(policy_->counters());
  progress.data = policy_->position();
  return progress;
}

absl::Status Sequencer::ChangeConfig(uint64_t incarnation, int64_t number,
                                     const ConfigChange& config_change) {
  Change change;
  {
    MutexLock lock(mutex_);
    Worker& chief = workers_[kChief];
    if (incarnation != chief.incarnation || !chief.member) {
      return absl::AbortedError(
          absl::StrCat("incarnation ", incarnation, " of the chief is not a member of the job"));
    }
    if (number <= chief.last_config_change) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(CheckLogHasRoom());
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_config_change()->set_incarnation(incarnation);
      event.mutable_config_change()->set_number(number);
      *event.mutable_config_change()->mutable_config_change() = ToProto(config_change);
      Replicate(std::move(event));
    }
    chief.last_config_change = number;
    Append(config_change);
    if (config_change.end) Decide(policy_->OnEnd());
    change = Changed();
  }
  Deliver(change);
  return absl::OkStatus();
}

absl::Status Sequencer::Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink,
                                  int64_t epoch) {
  {
    MutexLock lock(mutex_);
    const int64_t first = log_.empty() ? next_index_ : log_.front().index;
    Server& subscriber = servers_[static_cast<size_t>(server)];
    CAIRN_RETURN_IF_ERROR(ended_);
    if (epoch < subscriber.epoch) {
      return absl::UnavailableError(absl::StrCat("a backup has been promoted in place of ps/", server));
    }
    if (next_index < first || next_index > next_index_) {
      const std::string asked =
          absl::StrCat("ps/", server, " asks for the log from entry ", next_index,
                       ", but the log here has entries ", first, " to ", next_index_ - 1);
      // With replication, a backup was promoted: the follower's backup if the follower is behind, otherwise
      // ours.
      return replicator_ != nullptr ? absl::UnavailableError(asked) : absl::FailedPreconditionError(asked);
    }
    subscriber.epoch = epoch;
    subscriber.sink = sink;
    subscriber.sent = next_index - 1;
    Hand();
  }
  sink->Flush();
  return absl::OkStatus();
}

const LogEntry& Sequencer::EntryAt(int64_t index) const {
  return log_[static_cast<size_t>(index - log_.front().index)];
}

void Sequencer::Hand() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    if (server.sink == nullptr) continue;
    const bool at_once = replicator_ == nullptr || static_cast<int>(i) == own_server_;
    const int64_t last = at_once ? next_index_ - 1 : released_;
    for (; server.sent < last; ++server.sent) server.sink->Append(EntryAt(server.sent + 1));
  }
}

Sequencer::Change Sequencer::Changed() const {
  return {.sinks = Sinks(), .replicator = replicator_, .written = next_index_ - 1};
}

void Sequencer::Deliver(const Change& change) {
  if (change.replicator != nullptr) {
    change.replicator->WhenReplicated([this, written = change.written](const absl::Status& lost) {
      if (lost.ok()) Release(written);
    });
  }
  FlushAll(change.sinks);
}

void Sequencer::Release(int64_t index) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    if (index <= released_) return;
    released_ = index;
    Hand();
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (servers_[i].sink != nullptr && static_cast<int>(i) != own_server_)
        sinks.push_back(servers_[i].sink);
    }
  }
  FlushAll(sinks);
}

void Sequencer::Unsubscribe(int server, const LogSink* sink) {
  std::shared_ptr<LogSink> gone;  // destroyed outside the lock
  MutexLock lock(mutex_);
  auto& subscribed = servers_[static_cast<size_t>(server)].sink;
  if (subscribed.get() == sink) gone = std::move(subscribed);
}

void Sequencer::End(absl::string_view reason) {
  const absl::Status ended = absl::UnavailableError(reason);
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    ended_ = ended;
    sinks = Sinks();
    for (Server& server : servers_) server.sink = nullptr;
  }
  for (const auto& sink : sinks) sink->End(ended);
}

void Sequencer::OnStaged(int server, const Gradient& gradient) {
  Change change;
  {
    MutexLock lock(mutex_);
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_staged()->set_server(server);
      *event.mutable_staged()->mutable_gradient() = ToProto(gradient);
      Replicate(std::move(event));
    }
    Worker& worker = workers_[gradient.key.worker];
    if (gradient.key.incarnation != worker.incarnation || !worker.member) {
      if (!CheckLogHasRoom().ok()) return;
      const bool old = gradient.key.incarnation < worker.incarnation;
      Append(Refuse{.key = gradient.key,
                    .reason = old ? Refuse::Reason::kOldIncarnation : Refuse::Reason::kNotAMember,
                    .staleness = 0});
    } else if (gradient.key.step <= worker.last_step) {
      return;  // repeated by a server that reconnected: the decision is in the log
    } else {
      Partial& partial = partials_[gradient.key];
      // In asynchronous jobs, a worker may have read an older version from some servers than from others.
      const int64_t oldest = partial.servers.empty()
                                 ? gradient.base_version
                                 : std::min(gradient.base_version, partial.gradient.base_version);
      partial.gradient = gradient;
      partial.gradient.base_version = oldest;
      partial.servers.insert(server);
      if (partial.servers.size() < servers_.size()) return;
      worker.last_step = gradient.key.step;
      const Gradient whole = partial.gradient;
      partials_.erase(gradient.key);
      Decide(policy_->OnGradient(whole));
    }
    change = Changed();
  }
  Deliver(change);
}

void Sequencer::OnSums(int server, Sums sums) {
  Change change;
  {
    MutexLock lock(mutex_);
    if (!measuring_.has_value() || measuring_->index != sums.index) return;
    if (replicated()) {
      v1::SequencerEvent event;
      event.mutable_sums()->set_server(server);
      *event.mutable_sums()->mutable_sums() = ToProto(sums);
      Replicate(std::move(event));
    }
    if (!measuring_->sums.emplace(server, std::move(sums)).second) return;
    if (measuring_->sums.size() < servers_.size()) return;
    std::vector<SliceSquares> slices;
    for (auto& [from, reported] : measuring_->sums) {
      std::move(reported.slices.begin(), reported.slices.end(), std::back_inserter(slices));
    }
    ++measuring_->norms;
    WriteMeasured(AddUp(std::move(slices)));
    while (!measuring_.has_value() && !behind_.empty()) {
      LogEntry::What next = std::move(behind_.front());
      behind_.pop_front();
      Append(std::move(next));
    }
    change = Changed();
  }
  Deliver(change);
}

absl::Status Sequencer::CheckMeasuring(TimePoint now) {
  MutexLock lock(mutex_);
  if (!measuring_.has_value()) return absl::OkStatus();
  const std::vector<int> unmeasured = UnmeasuredServers();
  const auto away = [this](int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return servers_[static_cast<size_t>(server)].sink == nullptr;
  };
  if (std::any_of(unmeasured.begin(), unmeasured.end(), away)) {
    // There is no limit on the absence of a server: its backup is promoted, or the job is rolled back.
    measuring_->seen_at.reset();
    return absl::OkStatus();
  }
  if (!measuring_->seen_at.has_value()) measuring_->seen_at = now;
  if (now - *measuring_->seen_at < kLongestMeasuring) return absl::OkStatus();
  const auto name = [](std::string* out, int server) { absl::StrAppend(out, "ps/", server); };
  return absl::AbortedError(absl::StrCat("the update to version ", measuring_->apply.version, " has waited ",
                                         kLongestMeasuring.count(), " s for the norms of the slices on ",
                                         absl::StrJoin(unmeasured, ", ", name)));
}

std::vector<int> Sequencer::UnmeasuredServers() const {
  std::vector<int> missing;
  for (size_t i = 0; measuring_.has_value() && i < servers_.size(); ++i) {
    const int server = static_cast<int>(i);
    if (measuring_->sums.count(server) == 0) missing.push_back(server);
  }
  return missing;
}

void Sequencer::OnExecuted(int server, int64_t index) {
  MutexLock lock(mutex_);
  if (replicated()) {
    v1::SequencerEvent event;
    event.mutable_executed()->set_server(server);
    event.mutable_executed()->set_index(index);
    Replicate(std::move(event));
  }
  Server& follower = servers_[static_cast<size_t>(server)];
  const int64_t given =
      follower.sink == nullptr ? next_index_ - 1 : follower.sent;  // the follower's report may be wrong
  follower.executed = std::max(follower.executed, std::min(index, given));
  int64_t all = follower.executed;
  for (const Server& other : servers_) all = std::min(all, other.executed);
  while (!log_.empty() && log_.front().index <= all) log_.pop_front();
}

void Sequencer::OnWaiting(int server, int64_t index) {
  MutexLock lock(mutex_);
  if (!measuring_.has_value() || measuring_->index != index || measuring_->sums.count(server) != 0) return;
  measuring_->seen_at.reset();
}

void Sequencer::WokeUp() {
  MutexLock lock(mutex_);
  if (measuring_.has_value()) measuring_->seen_at.reset();
}

int64_t Sequencer::version() const {
  MutexLock lock(mutex_);
  return policy_->version();
}

UpdateCounters Sequencer::counters() const {
  MutexLock lock(mutex_);
  return ProgressNow().counters;
}

int64_t Sequencer::position(int worker) const {
  MutexLock lock(mutex_);
  const auto found = positions_.find(worker);
  return found == positions_.end() ? 0 : found->second;
}

int64_t Sequencer::ClockOf(int worker) const {
  MutexLock lock(mutex_);
  return policy_->ClockOf(worker);
}

std::optional<Work> Sequencer::WorkOf(int worker) const {
  MutexLock lock(mutex_);
  return policy_->WorkOf(worker);
}

std::optional<WorkPosition> Sequencer::DataPosition() const {
  MutexLock lock(mutex_);
  return policy_->position();
}

std::vector<int> Sequencer::WaitingFor() const {
  MutexLock lock(mutex_);
  return policy_->WaitingFor();
}

std::vector<int> Sequencer::MissingServers() const {
  MutexLock lock(mutex_);
  const std::vector<int> unmeasured = UnmeasuredServers();
  std::set<int> missing(unmeasured.begin(), unmeasured.end());
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].sink == nullptr) missing.insert(static_cast<int>(i));
  }
  return {missing.begin(), missing.end()};
}

void Sequencer::Decide(std::vector<Decision> decisions) {
  for (Decision& decision : decisions) {
    if (const auto* apply = std::get_if<Apply>(&decision)) {
      for (const Gradient& gradient : apply->contributors) {
        int64_t& position = positions_[gradient.key.worker];
        position = std::max(position, gradient.position);
      }
    }
    std::visit([this](auto& decided) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Append(std::move(decided)); },
               decision);
  }
}

void Sequencer::Append(LogEntry::What what) {
  if (measuring_.has_value()) {
    behind_.push_back(std::move(what));
  } else if (auto* apply = std::get_if<Apply>(&what); apply != nullptr && !norms_.empty()) {
    measuring_.emplace(std::move(*apply));
    WriteMeasured({});
  } else {
    Write(std::move(what), {});
  }
}

void Sequencer::WriteMeasured(VariableSquares known) {
  if (measuring_->norms == norms_.size()) {
    Write(std::move(measuring_->apply), std::move(known));
    measuring_.reset();
    return;
  }
  measuring_->index = next_index_;
  measuring_->sums.clear();
  measuring_->seen_at.reset();
  Write(Measure{.version = measuring_->apply.version,
                .contributors = measuring_->apply.contributors,
                .norms = norms_[measuring_->norms]},
        std::move(known));
}

void Sequencer::Write(LogEntry::What what, VariableSquares known) {
  log_.push_back({next_index_++, std::move(what), std::move(known)});
  if (replicator_ == nullptr) released_ = next_index_ - 1;
  Hand();
}

void Sequencer::DropPartials(int worker, Refuse::Reason reason) {
  for (auto it = partials_.begin(); it != partials_.end();) {
    if (it->first.worker == worker) {
      Append(Refuse{.key = it->first, .reason = reason, .staleness = 0});
      it = partials_.erase(it);
    } else {
      ++it;
    }
  }
}

std::vector<std::shared_ptr<LogSink>> Sequencer::Sinks() const {
  std::vector<std::shared_ptr<LogSink>> sinks;
  for (const Server& server : servers_) {
    if (server.sink != nullptr) sinks.push_back(server.sink);
  }
  return sinks;
}

}  // namespace cairn::ps

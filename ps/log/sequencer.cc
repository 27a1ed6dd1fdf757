#include "ps/log/sequencer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// The time limit of CheckMeasuring(): far longer than a pass over memory, and far longer than gRPC takes to
// detect a dead peer and to reconnect.
constexpr auto kLongestMeasuring = std::chrono::seconds(60);

// Flushes the last server first: the shard of ps/0 executes its entries in this thread, the others only send.
void FlushAll(absl::Span<const std::shared_ptr<LogSink>> sinks) {
  for (auto sink = sinks.rbegin(); sink != sinks.rend(); ++sink) (*sink)->Flush();
}

}  // namespace

absl::Status Sequencer::Step(SequencerInput input, Progress* after) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  InputSink* inputs = nullptr;
  int64_t written = 0;
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(state_.Check(input));
    if (auto* executed = std::get_if<EntriesExecuted>(&input)) {
      const Subscription& follower = SubscriptionOf(executed->server);
      if (follower.sink != nullptr) executed->index = std::min(executed->index, follower.sent);
    }
    if (inputs_ != nullptr) inputs_->Append(input);
    const int64_t next_index = state_.next_index();
    state_.Step(std::move(input));
    if (after != nullptr) *after = state_.progress();
    if (state_.next_index() == next_index) return absl::OkStatus();
    Hand();
    sinks = Sinks();
    inputs = inputs_;
    written = state_.next_index() - 1;
  }
  if (inputs != nullptr) {
    inputs->WhenReceived([this, written](const absl::Status& lost) {
      if (lost.ok()) Release(written);
    });
  }
  FlushAll(sinks);
  if (inputs != nullptr) inputs->Flush();
  return absl::OkStatus();
}

absl::StatusOr<Progress> Sequencer::WriteMarker(const Marker& marker) {
  Progress progress;
  CAIRN_RETURN_IF_ERROR(Step(MarkerPlaced{marker}, &progress));
  return progress;
}

absl::Status Sequencer::ChangeConfig(uint64_t incarnation, int64_t number,
                                     const ConfigChange& config_change) {
  return Step(ConfigChanged{incarnation, number, config_change});
}

void Sequencer::ReplicateTo(InputSink* inputs, int own_server) {
  MutexLock lock(mutex_);
  inputs_ = inputs;
  own_server_ = own_server;
  released_ = state_.next_index() - 1;
}

void Sequencer::Capture(absl::FunctionRef<void(const SequencerState& state)> send) {
  MutexLock lock(mutex_);
  send(state_);
}

absl::Status Sequencer::Load(const v1::SequencerState& saved) {
  MutexLock lock(mutex_);
  return state_.Load(saved);
}

absl::Status Sequencer::Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink,
                                  int64_t epoch) {
  {
    MutexLock lock(mutex_);
    const int64_t first = state_.first_index(), end = state_.next_index();
    Subscription& subscriber = SubscriptionOf(server);
    CAIRN_RETURN_IF_ERROR(ended_);
    if (epoch < subscriber.epoch) {
      return absl::UnavailableError(absl::StrCat("a backup has been promoted in place of ps/", server));
    }
    if (next_index < first || next_index > end) {
      const std::string asked = absl::StrCat("ps/", server, " asks for the log from entry ", next_index,
                                             ", but the log here has entries ", first, " to ", end - 1);
      // With replication, a backup was promoted: the follower's backup if the follower is behind, otherwise
      // ours.
      return inputs_ != nullptr ? absl::UnavailableError(asked) : absl::FailedPreconditionError(asked);
    }
    subscriber.epoch = epoch;
    subscriber.sink = sink;
    subscriber.sent = next_index - 1;
    Hand();
  }
  sink->Flush();
  return absl::OkStatus();
}

void Sequencer::Hand() {
  for (size_t i = 0; i < subscriptions_.size(); ++i) {
    Subscription& server = subscriptions_[i];
    if (server.sink == nullptr) continue;
    const bool at_once = inputs_ == nullptr || static_cast<int>(i) == own_server_;
    const int64_t last = at_once ? state_.next_index() - 1 : released_;
    for (; server.sent < last; ++server.sent) server.sink->Append(state_.EntryAt(server.sent + 1));
  }
}

void Sequencer::Release(int64_t index) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    if (index <= released_) return;
    released_ = index;
    Hand();
    for (size_t i = 0; i < subscriptions_.size(); ++i) {
      if (subscriptions_[i].sink != nullptr && static_cast<int>(i) != own_server_)
        sinks.push_back(subscriptions_[i].sink);
    }
  }
  FlushAll(sinks);
}

void Sequencer::Unsubscribe(int server, const LogSink* sink) {
  std::shared_ptr<LogSink> gone;  // destroyed outside the lock
  MutexLock lock(mutex_);
  auto& subscribed = SubscriptionOf(server).sink;
  if (subscribed.get() == sink) gone = std::move(subscribed);
}

void Sequencer::End(absl::string_view reason) {
  const absl::Status ended = absl::UnavailableError(reason);
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    ended_ = ended;
    sinks = Sinks();
    for (Subscription& server : subscriptions_) server.sink = nullptr;
  }
  for (const auto& sink : sinks) sink->End(ended);
}

absl::Status Sequencer::CheckMeasuring(TimePoint now) {
  MutexLock lock(mutex_);
  const auto unmeasured = state_.unmeasured();
  if (!unmeasured.has_value()) return absl::OkStatus();
  if (measure_time_.index != unmeasured->index) measure_time_ = {.index = unmeasured->index};
  std::optional<TimePoint>& since = measure_time_.since;
  const auto away = [this](int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return SubscriptionOf(server).sink == nullptr;
  };
  if (std::any_of(unmeasured->servers.begin(), unmeasured->servers.end(), away)) {
    // There is no limit on the absence of a server: its backup is promoted, or the job is rolled back.
    since.reset();
    return absl::OkStatus();
  }
  if (!since.has_value()) since = now;
  if (now - *since < kLongestMeasuring) return absl::OkStatus();
  const auto name = [](std::string* out, int server) { absl::StrAppend(out, "ps/", server); };
  return absl::AbortedError(absl::StrCat("the update to version ", unmeasured->version, " has waited ",
                                         kLongestMeasuring.count(), " s for the norms of the slices on ",
                                         absl::StrJoin(unmeasured->servers, ", ", name)));
}

void Sequencer::OnWaiting(int server, int64_t index) {
  MutexLock lock(mutex_);
  const auto unmeasured = state_.unmeasured();
  if (!unmeasured.has_value() || unmeasured->index != index) return;
  const std::vector<int>& servers = unmeasured->servers;
  if (std::find(servers.begin(), servers.end(), server) != servers.end()) measure_time_.since.reset();
}

void Sequencer::WokeUp() {
  MutexLock lock(mutex_);
  measure_time_.since.reset();
}

int64_t Sequencer::version() const {
  MutexLock lock(mutex_);
  return state_.policy().version();
}

UpdateCounters Sequencer::counters() const {
  MutexLock lock(mutex_);
  return state_.counters();
}

int64_t Sequencer::position(int worker) const {
  MutexLock lock(mutex_);
  return state_.position(worker);
}

int64_t Sequencer::ClockOf(int worker) const {
  MutexLock lock(mutex_);
  return state_.policy().ClockOf(worker);
}

std::optional<Work> Sequencer::WorkOf(int worker) const {
  MutexLock lock(mutex_);
  return state_.policy().WorkOf(worker);
}

std::optional<WorkPosition> Sequencer::DataPosition() const {
  MutexLock lock(mutex_);
  return state_.policy().position();
}

std::vector<int> Sequencer::WaitingFor() const {
  MutexLock lock(mutex_);
  return state_.policy().WaitingFor();
}

OpenRound Sequencer::open_round() const {
  MutexLock lock(mutex_);
  OpenRound round = {.version = state_.policy().version()};
  const NextUpdate next = state_.policy().next_update();
  std::set_union(next.staged.begin(), next.staged.end(), next.waiting_for.begin(), next.waiting_for.end(),
                 std::back_inserter(round.workers));
  return round;
}

std::vector<int> Sequencer::MissingServers() const {
  MutexLock lock(mutex_);
  std::set<int> missing;
  if (const auto unmeasured = state_.unmeasured())
    missing.insert(unmeasured->servers.begin(), unmeasured->servers.end());
  for (size_t i = 0; i < subscriptions_.size(); ++i) {
    if (subscriptions_[i].sink == nullptr) missing.insert(static_cast<int>(i));
  }
  return {missing.begin(), missing.end()};
}

std::vector<std::shared_ptr<LogSink>> Sequencer::Sinks() const {
  std::vector<std::shared_ptr<LogSink>> sinks;
  for (const Subscription& server : subscriptions_) {
    if (server.sink != nullptr) sinks.push_back(server.sink);
  }
  return sinks;
}

}  // namespace cairn::ps

#include "ps/replication/replicator.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/core/log.h"
#include "common/core/random.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::ps {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);
// A lost backup is logged only after this time, because at the end of a job the backup's process may end
// first, and because a broken stream may be reopened soon.
constexpr auto kLogAfter = std::chrono::seconds(2);
// Limit on the wait for the first answer of a stream, and between two answers. Heartbeats arrive every
// 200 ms.
constexpr auto kAnswerLimit = std::chrono::seconds(4);
// Limit on the pause after a stream that ended before the backup had the whole state.
constexpr auto kLongestPause = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(500);
// Limit on the items that are held back: their answer takes as long as the work of all of them.
constexpr size_t kMaxHeld = 64;

// Whether the process has answered that it has no backup of this shard, so that it will not be promoted. Only
// BackupSession and the service use this code.
bool KeepsNone(const absl::Status& end) {
  return absl::IsFailedPrecondition(end);
}

// Whether the connection was refused, which means that the backup's process has ended.
bool IsGone(const absl::Status& end) {
  return absl::IsUnavailable(end) && net::WhyUnreachable(end) == "connection refused";
}

// Whether the item is a report to the sequencer, which decides nothing alone.
bool MayWait(const ReplicationItem& item) {
  return item.body.input().has_staged() || item.body.input().has_executed();
}

}  // namespace

Replicator::Replicator(Options options)
    : options_(std::move(options)),
      backoff_(StreamOf(options_.shard), std::chrono::milliseconds(20), std::chrono::milliseconds(1000)) {
  opened_ = next_open_ = last_said_ = last_step_ = awake_since_ = Now();
}

Replicator::~Replicator() {
  Stop();
}

TimePoint Replicator::Now() const {
  return options_.clock == nullptr ? std::chrono::steady_clock::now() : options_.clock->Now();
}

void Replicator::Wake() {
  ++wakes_;
  changed_.NotifyAll();
}

void Replicator::Start() {
  {
    MutexLock lock(mutex_);
    started_ = true;
    last_said_ = Now();
  }
  if (options_.clock == nullptr) thread_ = Thread("replicator", [this] { Run(); });
}

void Replicator::Stop() {
  Quit();
  if (options_.clock == nullptr) {
    thread_.Join();
  } else {
    Step();  // closes the stream
  }
}

void Replicator::Quit() {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kFenced) state_ = State::kStopped;
    calls = Due();
    Wake();
  }
  Make(std::move(calls));
}

bool Replicator::wants(Component component) const {
  MutexLock lock(mutex_);
  return Wants(component);
}

void Replicator::SendState(Component component, ReplicationItem item) {
  MutexLock lock(mutex_);
  if (stream_ == nullptr) return;
  for_state_ += net::TimeForBytes(item.bytes());
  SendNow(std::move(item));
  sent_state_[static_cast<size_t>(component)] = true;
  Wake();
}

void Replicator::Send(Component component, ReplicationItem item) {
  MutexLock lock(mutex_);
  if (!Wants(component)) return;
  const bool urgent = !MayWait(item) || state_ != State::kInSync;
  Hold(std::move(item));
  if (urgent || held_.size() >= kMaxHeld) SendHeld();
}

void Replicator::SendMean(Component component, MeanRun run) {
  MutexLock lock(mutex_);
  if (!Wants(component)) return;
  sent_mean_.Add(run);
  std::vector<NumberedItem> items(1);
  items[0].run = std::move(run);
  stream_->Send(std::move(items));
}

uint64_t Replicator::Hold(ReplicationItem item) {
  ++last_;
  behind_.Add(last_, item);
  sent_mean_.LeaveOut(item);
  held_.push_back({.number = last_, .item = std::move(item)});
  return last_;
}

void Replicator::SendHeld() {
  if (!held_.empty()) stream_->Send(std::exchange(held_, {}));
}

uint64_t Replicator::SendNow(ReplicationItem item) {
  Hold(std::move(item));
  SendHeld();
  return last_;
}

bool Replicator::AnswersWait() const {
  switch (state_) {
    case State::kInSync:
    case State::kUnsure:
      return true;
    case State::kCatchingUp:
      return behind_.bytes() > options_.most_behind_bytes;
    default:
      return false;
  }
}

void Replicator::Flush() {
  MutexLock lock(mutex_);
  if (!waiting_.empty() && stream_ != nullptr) SendHeld();
}

void Replicator::WhenReplicated(Callback then, bool send) {
  absl::Status lost;
  {
    MutexLock lock(mutex_);
    if (Over()) {
      lost = absl::UnavailableError(absl::StrCat("this server does not serve ", options_.shard, " any more"));
    } else if (AnswersWait() && (replicated_ < last_ || state_ == State::kUnsure)) {
      waiting_.emplace_back(last_, std::move(then));
      if (send) SendHeld();
      return;
    }
  }
  then(lost);
}

Replicator::Calls Replicator::Due() {
  Calls calls;
  const absl::Status lost =
      Over()
          ? absl::UnavailableError(absl::StrCat("this server does not serve ", options_.shard, " any more"))
          : absl::OkStatus();
  const bool all = !AnswersWait();
  while (!waiting_.empty() && (all || (state_ != State::kUnsure && waiting_.front().first <= replicated_))) {
    calls.emplace_back(std::move(waiting_.front().second), lost);
    waiting_.pop_front();
  }
  return calls;
}

void Replicator::Make(Calls calls) {
  for (auto& [call, lost] : calls) call(lost);
}

bool Replicator::was_in_sync() const {
  MutexLock lock(mutex_);
  return was_in_sync_;
}

std::string Replicator::fenced() const {
  MutexLock lock(mutex_);
  return state_ == State::kFenced ? fenced_ : std::string();
}

void Replicator::OnAnswer(const v1::ReplicationAck& answer) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    last_answer_ = Now();
    if (answer.keeper() != 0) answering_ = answer.keeper();
    replicated_ = std::max(replicated_, std::min(answer.replicated(), last_));
    behind_.Receive(replicated_);
    for (; !echoes_.empty() && echoes_.front().first <= replicated_; echoes_.pop_front())
      heard_ = echoes_.front().second;
    if (answer.beat() != 0 && stream_ != nullptr && state_ != State::kStopped) {
      last_echo_ = last_answer_;
      ReplicationItem echo;
      echo.body.set_echo(answer.beat());
      echoes_.emplace_back(SendNow(std::move(echo)), last_echo_);
    }
    calls = Due();
    if (state_ != State::kInSync) Wake();  // a step may be due
  }
  Make(std::move(calls));
}

void Replicator::OnClosed(const absl::Status& status) {
  MutexLock lock(mutex_);
  closed_ = status.ok() ? absl::UnavailableError("the stream was closed") : status;
  Wake();
}

bool Replicator::Ended() const {
  if (closed_.has_value() || Over()) return true;
  const Duration more = phase_ == Phase::kAgreeing ? options_.allocating
                        : SendsState()             ? for_state_
                                                   : Duration();
  return Now() - last_answer_ > kAnswerLimit + more || MayGoOnAlone();
}

bool Replicator::MayGoOnAlone() const {
  const TimePoint now = Now();
  return state_ == State::kUnsure && now - last_echo_ > kAloneAfter && now - awake_since_ > kAnswerLimit;
}

bool Replicator::Open() {
  {
    MutexLock lock(mutex_);
    if (!started_ || Over() || Now() < next_open_) return false;
    closed_.reset();
    sent_state_ = {};
    sent_mean_ = {};
    for_state_ = {};
    opened_ = last_answer_ = Now();
  }
  open_ = options_.dial(*this);
  MutexLock lock(mutex_);
  stream_ = open_.get();
  ReplicationItem origin;
  *origin.body.mutable_origin() = options_.origin;
  awaited_ = SendNow(std::move(origin));
  return true;
}

bool Replicator::MayHaveBeenReplaced() const {
  return broken_ - heard_ > kSilent;
}

void Replicator::Fence() {
  state_ = State::kFenced;
  fenced_ = absl::StrCat(options_.backup, ", whose process has ended, may have been promoted in place of ",
                         options_.shard, ", which it had not heard from for ",
                         absl::FormatDuration(absl::FromChrono(broken_ - heard_)));
}

void Replicator::Agree() {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const bool new_life = std::exchange(keeper_, answering_) != answering_;
    if (state_ == State::kUnsure && new_life && MayHaveBeenReplaced()) {
      Fence();
      return;
    }
    if (state_ == State::kAlone || state_ == State::kUnsure) state_ = State::kCatchingUp;
    heard_ = opened_;
    calls = Due();
  }
  Make(std::move(calls));
  options_.capture();
}

void Replicator::BecomeInSync() {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kCatchingUp) {
      ReplicationItem whole;
      whole.body.set_in_sync(true);
      SendNow(std::move(whole));
      state_ = State::kInSync;
      was_in_sync_ = true;
      has_lost_backup_ = false;
      untold_loss_.clear();
    }
  }
  LogInfo(options_.shard, "'s shard is in sync with its backup on ", options_.backup);
}

bool Replicator::Advance() {
  if (phase_ == Phase::kNone) {
    if (!Open()) return false;
    phase_ = Phase::kAgreeing;
    return true;
  }
  bool ended;
  {
    MutexLock lock(mutex_);
    ended = Ended();
    const bool all_sent = std::all_of(sent_state_.begin(), sent_state_.end(), [](bool sent) { return sent; });
    const bool ready =
        phase_ == Phase::kSendingState ? all_sent : phase_ != Phase::kInSync && replicated_ >= awaited_;
    if (!ended && !ready) return false;
    if (phase_ == Phase::kSendingState) awaited_ = last_;
  }
  if (ended) {
    Close();
    phase_ = Phase::kNone;
  } else if (phase_ == Phase::kAgreeing) {
    phase_ = Phase::kSendingState;
    Agree();
  } else if (phase_ == Phase::kSendingState) {
    phase_ = Phase::kHoldingState;
  } else {
    phase_ = Phase::kInSync;
    BecomeInSync();
  }
  return true;
}

void Replicator::Close() {
  absl::Status end;
  {
    MutexLock lock(mutex_);
    stream_ = nullptr;
    end = closed_.value_or(absl::DeadlineExceededError("no answer in time"));
    held_.clear();
    behind_ = {};
    echoes_.clear();
    if (state_ == State::kInSync) {
      state_ = State::kUnsure;
      broken_ = Now();
    }
  }
  open_.reset();
  Conclude(end);
  MutexLock lock(mutex_);
  const TimePoint now = Now();
  if (!Over() && now - last_said_ > kLogEvery && now - broken_ > kLogAfter) {
    last_said_ = now;
    LogWarning("waiting for the backup of ", options_.shard, "'s shard on ", options_.backup, ": ",
               net::WhyUnreachable(end));
  }
  if (phase_ == Phase::kInSync && now - opened_ > kLogEvery / 2) backoff_.Reset();  // it worked for a while
  // A stream begins with the whole state: if states do not arrive, at most half of the time is spent on them.
  const Duration sending = SendsState() ? std::min<Duration>(now - opened_, kLongestPause) : Duration();
  next_open_ = now + (state_ == State::kUnsure ? std::chrono::milliseconds(5)
                                               : std::max<Duration>(backoff_.Next(), sending));
}

void Replicator::Conclude(const absl::Status& end) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const bool gone = KeepsNone(end) || IsGone(end);
    if (Over()) {
      // The state is final; the reason why the stream has ended does not change it.
    } else if (absl::IsAborted(end)) {
      state_ = State::kFenced;
      fenced_ = absl::StrCat(options_.backup, " has been promoted in place of ", options_.shard);
    } else if (state_ == State::kUnsure && gone && MayHaveBeenReplaced()) {
      Fence();
    } else if (state_ == State::kCatchingUp || gone || MayGoOnAlone()) {
      state_ = State::kAlone;
      if (!std::exchange(has_lost_backup_, true)) {
        untold_loss_ = absl::StrCat(options_.shard, "'s shard has no backup now: ", options_.backup, ": ",
                                    net::WhyUnreachable(end));
      }
    }
    calls = Due();
  }
  Make(std::move(calls));
}

void Replicator::Step() {
  {
    MutexLock lock(mutex_);
    const TimePoint now = Now();
    if (now - std::exchange(last_step_, now) > kSilent) awake_since_ = now;
  }
  while (Advance()) {
  }
  LogThatBackupIsLost();
}

void Replicator::LogThatBackupIsLost() {
  std::string loss;
  {
    MutexLock lock(mutex_);
    if (!Over() && Now() - broken_ > kLogAfter) loss = std::exchange(untold_loss_, "");
  }
  if (!loss.empty()) LogWarning(loss);
}

void Replicator::Run() {
  for (;;) {
    uint64_t wakes;
    {
      MutexLock lock(mutex_);
      wakes = wakes_;
    }
    Step();
    MutexLock lock(mutex_);
    if (phase_ == Phase::kNone && Over()) return;
    const TimePoint look = phase_ == Phase::kNone ? next_open_ : Now() + kLook;
    while (wakes_ == wakes && changed_.WaitUntil(mutex_, look)) {
    }
  }
}

}  // namespace cairn::ps

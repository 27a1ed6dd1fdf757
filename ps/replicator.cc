#include "ps/replicator.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/random.h"
#include "common/net/backoff.h"
#include "common/net/unreachable.h"

namespace cairn::ps {
namespace {

constexpr auto kSayEvery = std::chrono::seconds(10);
// For the first answer on a stream; and between two, which beats make four times a second.
constexpr auto kAnswerLimit = std::chrono::seconds(4);
constexpr auto kLook = std::chrono::milliseconds(500);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// Its process answers that it keeps no copy of this part, so it will not take our place. Only CopySession and
// the service say so.
bool KeepsNone(const absl::Status& end) {
  return absl::IsFailedPrecondition(end);
}

// Nobody listens there: the process that kept the copy has ended.
bool IsGone(const absl::Status& end) {
  return absl::IsUnavailable(end) && net::WhyUnreachable(end) == "connection refused";
}

int64_t BytesOf(const CopyItem& item) {
  int64_t floats = 0;
  for (const auto& part : item.floats) floats += part->size();
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Replicator::~Replicator() {
  Stop();
}

void Replicator::Start() {
  thread_ = Thread("replicator", [this] { Run(); });
}

void Replicator::Stop() {
  Quit();
  thread_.Join();
}

void Replicator::Quit() {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kDeposed) state_ = State::kStopped;
    calls = Due();
    changed_.NotifyAll();
  }
  Make(std::move(calls));
}

bool Replicator::wants(Part part) const {
  MutexLock lock(mutex_);
  return stream_ != nullptr && sent_state_[static_cast<size_t>(part)];
}

void Replicator::SendState(Part part, CopyItem item) {
  MutexLock lock(mutex_);
  if (stream_ == nullptr) return;
  SendNow(std::move(item));
  sent_state_[static_cast<size_t>(part)] = true;
  changed_.NotifyAll();
}

void Replicator::Send(Part part, CopyItem item) {
  MutexLock lock(mutex_);
  if (stream_ != nullptr && sent_state_[static_cast<size_t>(part)]) SendNow(std::move(item));
}

uint64_t Replicator::SendNow(CopyItem item) {
  if (const int64_t bytes = BytesOf(item); bytes > 0) {
    behind_.emplace_back(last_ + 1, bytes);
    behind_bytes_ += bytes;
  }
  stream_->Send(++last_, std::move(item));
  return last_;
}

bool Replicator::HeldBack() const {
  switch (state_) {
    case State::kWhole:
    case State::kUnsure:
      return true;
    case State::kCatchingUp:
      return behind_bytes_ > options_.most_behind_bytes;
    default:
      return false;
  }
}

void Replicator::WhenHeld(Held then) {
  absl::Status lost;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kDeposed || state_ == State::kStopped) {
      lost = absl::UnavailableError(absl::StrCat("this server does not serve ", options_.part, " any more"));
    } else if (HeldBack() && (held_ < last_ || state_ == State::kUnsure)) {
      waiting_.emplace_back(last_, std::move(then));
      return;
    }
  }
  then(lost);
}

Replicator::Calls Replicator::Due() {
  Calls calls;
  const bool over = state_ == State::kDeposed || state_ == State::kStopped;
  const absl::Status lost =
      over ? absl::UnavailableError(absl::StrCat("this server does not serve ", options_.part, " any more"))
           : absl::OkStatus();
  const bool all = !HeldBack();
  while (!waiting_.empty() && (all || (state_ != State::kUnsure && waiting_.front().first <= held_))) {
    calls.emplace_back(std::move(waiting_.front().second), lost);
    waiting_.pop_front();
  }
  return calls;
}

void Replicator::Make(Calls calls) {
  for (auto& [call, lost] : calls) call(lost);
}

bool Replicator::was_whole() const {
  MutexLock lock(mutex_);
  return was_whole_;
}

bool Replicator::deposed() const {
  MutexLock lock(mutex_);
  return state_ == State::kDeposed;
}

void Replicator::OnAnswer(const v1::CopyAnswer& answer) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    last_answer_ = Now();
    held_ = std::max(held_, std::min(answer.held(), last_));
    while (!behind_.empty() && behind_.front().first <= held_) {
      behind_bytes_ -= behind_.front().second;
      behind_.pop_front();
    }
    if (answer.beat() != 0 && stream_ != nullptr && state_ != State::kStopped) {
      last_echo_ = last_answer_;
      CopyItem echo;
      echo.body.set_echo(answer.beat());
      SendNow(std::move(echo));
    }
    calls = Due();
    changed_.NotifyAll();
  }
  Make(std::move(calls));
}

void Replicator::OnClosed(const absl::Status& status) {
  MutexLock lock(mutex_);
  closed_ = status.ok() ? absl::UnavailableError("the stream was closed") : status;
  changed_.NotifyAll();
}

template <typename Done>
bool Replicator::Await(Done done, std::optional<TimePoint> deadline) {
  MutexLock lock(mutex_);
  while (!closed_.has_value() && state_ != State::kStopped) {
    if (done()) return true;
    const TimePoint now = Now();
    if (deadline.has_value() && now >= *deadline) return false;
    if (now - last_answer_ > kAnswerLimit) return false;
    if (state_ == State::kUnsure && now - last_echo_ > kAloneAfter) return false;
    changed_.WaitUntil(mutex_, now + kLook);
  }
  return false;
}

absl::Status Replicator::Serve() {
  {
    MutexLock lock(mutex_);
    closed_.reset();
    sent_state_ = {};
    last_answer_ = Now();
  }
  const std::unique_ptr<CopyStream> stream = options_.dial(*this);
  uint64_t first = 0;
  {
    MutexLock lock(mutex_);
    stream_ = stream.get();
    CopyItem origin;
    *origin.body.mutable_origin() = options_.origin;
    first = SendNow(std::move(origin));
  }
  const bool agreed =
      Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_ >= first; }, std::nullopt);
  if (agreed) {
    Calls calls;
    {
      MutexLock lock(mutex_);
      if (state_ == State::kAlone || state_ == State::kUnsure) state_ = State::kCatchingUp;
      calls = Due();
    }
    Make(std::move(calls));
    options_.capture();
    uint64_t state = 0;
    const auto all_sent = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      state = last_;
      return std::all_of(sent_state_.begin(), sent_state_.end(), [](bool sent) { return sent; });
    };
    const auto all_held = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_ >= state; };
    if (Await(all_sent, std::nullopt) && Await(all_held, std::nullopt)) {
      {
        MutexLock lock(mutex_);
        if (state_ == State::kCatchingUp) {
          CopyItem whole;
          whole.body.set_whole(true);
          SendNow(std::move(whole));
          state_ = State::kWhole;
          was_whole_ = true;
          said_alone_ = false;
          changed_.NotifyAll();
        }
      }
      LogInfo(options_.part, "'s part has a whole copy on ", options_.copy);
      Await([] { return false; }, std::nullopt);
    }
  }
  absl::Status end;
  {
    MutexLock lock(mutex_);
    stream_ = nullptr;
    end = closed_.value_or(absl::DeadlineExceededError("no answer in time"));
    behind_.clear();
    behind_bytes_ = 0;
    if (state_ == State::kWhole) state_ = State::kUnsure;
  }
  return end;  // the stream closes
}

void Replicator::Conclude(const absl::Status& end) {
  Calls calls;
  std::string why;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kStopped) return;
    if (absl::IsAborted(end)) {
      state_ = State::kDeposed;
    } else if (state_ == State::kCatchingUp || KeepsNone(end) || IsGone(end) ||
               (state_ == State::kUnsure && Now() - last_echo_ > kAloneAfter)) {
      state_ = State::kAlone;
      if (!std::exchange(said_alone_, true)) {
        why = absl::StrCat(options_.part, "'s part has no copy now: ", options_.copy, ": ",
                           net::WhyUnreachable(end));
      }
    }
    calls = Due();
  }
  if (!why.empty()) LogWarning(why);
  Make(std::move(calls));
}

void Replicator::Run() {
  net::Backoff backoff(StreamOf(options_.part), std::chrono::milliseconds(20),
                       std::chrono::milliseconds(1000));
  TimePoint last_said = Now();
  for (;;) {
    const TimePoint opened = Now();
    const absl::Status end = Serve();
    Conclude(end);
    MutexLock lock(mutex_);
    if (state_ == State::kDeposed || state_ == State::kStopped) return;
    const TimePoint now = Now();
    if (now - last_said > kSayEvery) {
      last_said = now;
      LogWarning("waiting for a copy of ", options_.part, "'s part on ", options_.copy, ": ",
                 net::WhyUnreachable(end));
    }
    if (now - opened > kSayEvery / 2) backoff.Reset();  // it worked for a while
    const TimePoint next = now + (state_ == State::kUnsure ? std::chrono::milliseconds(5) : backoff.Next());
    while (state_ != State::kStopped && Now() < next) changed_.WaitUntil(mutex_, next);
    if (state_ == State::kStopped) return;
  }
}

}  // namespace cairn::ps

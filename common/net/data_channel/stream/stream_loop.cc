#include "common/net/data_channel/stream/stream_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/system/cores.h"
#include "common/system/limits.h"

namespace cairn::net {
namespace {

// How many messages the stream's thread sends, or a thread receives, before it turns to something else.
constexpr int kTurn = 4;

// The pollers of this process. At most half of the usable cores spin: the other ends may run on the rest.
BusyPollers<>& Pollers() {
  static BusyPollers<> pollers(UsableCores() / 2);
  return pollers;
}

// A thread in ReceiveUntil() has nothing else to do, and a training step waits for it. Therefore it spins in
// two cases in which the stream's thread does not: when the last wait was long ago, because the thread has
// computed since then, and while a large payload arrives.
constexpr BusyPoll<>::Options kCallerWaits = {.short_wait = std::chrono::microseconds(200),
                                              .awake = std::chrono::microseconds(200),
                                              .exchanges_alone = false};

}  // namespace

StreamLoop::StreamLoop(const Parts& parts, bool server)
    : parts_(parts),
      server_(server),
      watch_(epoll_create1(EPOLL_CLOEXEC)),
      caller_waits_(Pollers(), kCallerWaits),
      waits_(Pollers(), {}),
      silence_(parts.options.first_limit, parts.options.idle_limit, std::chrono::steady_clock::now()) {}

absl::Status StreamLoop::Open() {
  if (!parts_.wake.valid() || !nudge_.valid() || !watch_.valid()) {
    return absl::UnavailableError(
        absl::StrCat("no file descriptor is left for a stream (ulimit -n is ", DescriptorLimit(), ")"));
  }
  CAIRN_RETURN_IF_ERROR(Watch(parts_.wake.descriptor(), EPOLLIN));
  return Watch(parts_.socket, 0);
}

absl::Status StreamLoop::WatchRing(const FileDescriptor& ring_wake) {
  ring_wake_ = &ring_wake;
  return Watch(ring_wake, EPOLLIN);
}

absl::Status StreamLoop::Watch(const FileDescriptor& descriptor, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = descriptor.get()}};
  if (epoll_ctl(watch_.get(), EPOLL_CTL_ADD, descriptor.get(), &event) == 0) return absl::OkStatus();
  return SystemFailure("watching a descriptor");
}

absl::Status StreamLoop::Run() {
  absl::Status status;
  bool receive = true;
  while (status.ok()) {
    status = parts_.sender.Pump(kTurn);
    if (status.ok() && receive) {
      status = parts_.receiver.Receive(kTurn);
      parts_.receiver.ConfirmReleased();
    }
    if (status.ok()) status = Wait(&receive);
  }
  return status;
}

void StreamLoop::Close() {
  closing_ = true;
  shutdown(parts_.socket.get(), SHUT_RDWR);
  parts_.wake.Raise();
}

void StreamLoop::Finish(absl::Status why) {
  {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(why);
  }
  parts_.wake.Raise();
}

void StreamLoop::TakeOver() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  Nudge();
  MutexLock lock(mutex_);
  while (receiving_ == Receiving::kCaller) stepped_back_.Wait(mutex_);  // receiving does not block
  receiving_ = Receiving::kThread;
}

absl::Status StreamLoop::Wait(bool* receive) {
  if (closing_) return absl::CancelledError("the stream was closed");
  const TimePoint now = std::chrono::steady_clock::now();
  CAIRN_ASSIGN_OR_RETURN(const StreamSender::Outlook outlook, parts_.sender.LookAhead(now));
  int timeout_ms = outlook.timeout_ms;
  if (server_) {
    const auto left =
        silence_.Left(now, parts_.receiver.TakeHeard(), [this] { return parts_.user.OwesAnswer(); });
    if (left.count() == 0) return absl::UnavailableError("the client has been silent for too long");
    const auto limit = static_cast<int>(std::min<int64_t>(left.count(), std::numeric_limits<int>::max()));
    timeout_ms = timeout_ms < 0 ? limit : std::min(timeout_ms, limit);
  }
  CAIRN_ASSIGN_OR_RETURN(timeout_ms, BeginWait(outlook, timeout_ms));
  CAIRN_ASSIGN_OR_RETURN(const Events events, Poll(timeout_ms));
  CAIRN_ASSIGN_OR_RETURN(*receive, EndWait(events));
  const bool room = (events.socket & EPOLLOUT) != 0;
  if (room || events.ring || outlook.blocked == Blocked::kByCreditLimit) {
    parts_.sender.Unblock(room, events.ring);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> StreamLoop::BeginWait(const StreamSender::Outlook& outlook, int timeout_ms) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  resting_ = outlook.rests;
  awaits_room_ = outlook.blocked == Blocked::kBySocket;
  if (receiving_ != Receiving::kCaller) {
    const bool unread = parts_.receiver.unread() && !resting_;
    receiving_ = unread ? Receiving::kThread : Receiving::kNobody;
    if (unread) timeout_ms = 0;
    if (parts_.receiver.TakeLarge()) waits_.Distrust();
  }
  Arm();
  return timeout_ms;
}

void StreamLoop::Arm() {
  const bool callers = receiving_ == Receiving::kCaller;
  uint32_t events = 0;
  if (!resting_ && !callers) events |= EPOLLIN;
  if (awaits_room_) events |= EPOLLOUT;
  // EPOLLHUP cannot be masked. With EPOLLET it is reported only once; the thread in ReceiveUntil() handles
  // it.
  if (callers) events |= EPOLLET;
  if (std::exchange(armed_, events) == events) return;
  epoll_event event{.events = events, .data = {.fd = parts_.socket.get()}};
  CAIRN_CHECK(epoll_ctl(watch_.get(), EPOLL_CTL_MOD, parts_.socket.get(), &event) == 0);
}

absl::StatusOr<StreamLoop::Events> StreamLoop::Poll(int timeout_ms) {
  epoll_event ready[3];
  const int count = waits_.Wait(
      timeout_ms, [&](int most_ms) { return epoll_wait(watch_.get(), ready, std::size(ready), most_ms); });
  if (count < 0 && errno != EINTR) return SystemFailure("epoll_wait");
  Events events;
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.fd == parts_.socket.get()) {
      events.socket = ready[i].events;
    } else if (ready[i].data.fd == parts_.wake.descriptor().get()) {
      parts_.wake.Clear();
    } else {
      events.ring = true;
      char drained[64];
      const ssize_t got = recv(ring_wake_->get(), drained, sizeof drained, MSG_DONTWAIT);
      if (got == 0) return OtherEndClosed();
      if (got < 0 && errno != EAGAIN && errno != EINTR) return SystemFailure("receiving");
    }
  }
  return events;
}

absl::StatusOr<bool> StreamLoop::EndWait(const Events& events) {
  const bool ended = (events.socket & (EPOLLHUP | EPOLLERR)) != 0;
  MutexLock lock(mutex_);
  if (resting_ && ended) return OtherEndClosed();
  if (receiving_ == Receiving::kNobody && !resting_ &&
      (parts_.receiver.unread() || ended || (events.socket & EPOLLIN) != 0)) {
    receiving_ = Receiving::kThread;
  }
  return receiving_ == Receiving::kThread;
}

bool StreamLoop::ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) {
  CAIRN_CHECK(!server_);
  {
    MutexLock lock(mutex_);
    if (ending_ || closing_ || receiving_ != Receiving::kNobody) return false;
    receiving_ = Receiving::kCaller;
    Arm();
  }
  absl::StatusOr<bool> readable = true;
  while (readable.ok() && *readable && !enough() && std::chrono::steady_clock::now() < deadline) {
    if (!parts_.receiver.unread()) {
      readable = AwaitReadable(deadline);
      if (!readable.ok() || !*readable) break;
    }
    if (absl::Status status = parts_.receiver.Receive(kTurn); !status.ok()) readable = std::move(status);
    parts_.receiver.ConfirmReleased();
  }
  return StepBack(readable.status());
}

absl::StatusOr<bool> StreamLoop::AwaitReadable(TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const auto most = std::chrono::milliseconds(std::chrono::hours(1));  // then `enough` is called again
  pollfd ready[2] = {{parts_.socket.get(), POLLIN, 0}, {nudge_.descriptor().get(), POLLIN, 0}};
  const int found =
      caller_waits_.Wait(static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count()),
                         [&](int most_ms) { return poll(ready, std::size(ready), most_ms); });
  if (found < 0 && errno != EINTR) return SystemFailure("poll");
  if (ready[1].revents != 0) nudge_.Clear();
  return found > 0 && ready[1].revents == 0;
}

bool StreamLoop::StepBack(const absl::Status& status) {
  MutexLock lock(mutex_);
  receiving_ = Receiving::kNobody;
  Arm();
  if (failure_.ok()) failure_ = status;
  if (!status.ok() || parts_.receiver.unread()) parts_.wake.Raise();  // the stream's thread carries on
  stepped_back_.NotifyAll();
  return status.ok() && !ending_ && !closing_;
}

void StreamLoop::Nudge() {
  MutexLock lock(mutex_);
  if (receiving_ == Receiving::kCaller) nudge_.Raise();
}

}  // namespace cairn::net

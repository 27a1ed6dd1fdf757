// The event loop of a DataStream: waits for the socket, the ring, credit and time limits, and decides which
// thread receives: the stream's thread, or one that called ReceiveUntil().
//
// Owned by the DataStream. The lock guards who receives and what wakes the stream's thread; it is held
// together with no other lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/socket/event_fd.h"
#include "common/net/data_channel/stream/busy_poll.h"
#include "common/net/data_channel/stream/data_receiver.h"
#include "common/net/data_channel/stream/silence_limit.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/data_channel/stream/stream_receiver.h"
#include "common/net/data_channel/stream/stream_sender.h"

namespace cairn::net {

class StreamLoop {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // The parts that the loop drives. All must outlive it.
  struct Parts {
    const FileDescriptor& socket;
    const StreamOptions& options;
    const EventFd& wake;  // wakes the stream's thread
    StreamSender& sender;
    StreamReceiver& receiver;
    DataReceiver& user;
  };

  StreamLoop(const Parts& parts, bool server);
  // To be called first. UNAVAILABLE if the system had no file descriptor left.
  absl::Status Open();
  // Another socket to watch, before Run(): what arrives there says that the ring has room.
  absl::Status WatchRing(const FileDescriptor& ring_wake);

  // The stream's thread: sends and receives until the stream must end. Returns the reason, never OK.
  absl::Status Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream's thread: waits until no other thread receives, and prevents that from now on.
  void TakeOver() ABSL_LOCKS_EXCLUDED(mutex_);
  // Shuts the socket down and makes Run() return soon. Any thread.
  void Close();
  // Makes Run() return `why` soon, unless there is an earlier reason. Any thread.
  void Finish(absl::Status why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether Close() has been called.
  const std::atomic<bool>& closing() const { return closing_; }

  // See DataStream.
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  void Nudge() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Receiving { kNobody, kThread, kCaller };

  // Waits until the stream's thread has something to do. `receive`: whether it should receive.
  absl::Status Wait(bool* receive) ABSL_LOCKS_EXCLUDED(mutex_);
  // Decides who receives while the stream's thread waits. Returns the time to wait, `timeout_ms` or less.
  absl::StatusOr<int> BeginWait(const StreamSender::Outlook& outlook, int timeout_ms)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The events of one wait.
  struct Events {
    uint32_t socket = 0;
    bool ring = false;  // the ring has room
  };
  absl::StatusOr<Events> Poll(int timeout_ms);
  absl::StatusOr<bool> EndWait(const Events& events) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Watch(const FileDescriptor& descriptor, uint32_t events);
  // Sets the events of the socket that wake the stream's thread.
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // For a thread in ReceiveUntil(): waits until there is something to receive. Returns false if `deadline`
  // has passed or Nudge() was called.
  absl::StatusOr<bool> AwaitReadable(TimePoint deadline);
  // To be called at the end of ReceiveUntil(), when the calling thread stops receiving. `status` is the error
  // that it got, or OK. Returns false after an error, or if the stream is ending.
  bool StepBack(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  const bool server_;
  const FileDescriptor watch_;  // the epoll instance of the stream's thread
  const FileDescriptor* ring_wake_ = nullptr;
  const EventFd nudge_;  // wakes a thread in ReceiveUntil()
  std::atomic<bool> closing_{false};

  BusyPoll<> caller_waits_;  // used by the thread in ReceiveUntil()

  // Used by the stream's thread.
  BusyPoll<> waits_;
  SilenceLimit silence_;

  Mutex mutex_;
  CondVar stepped_back_;  // signalled when a thread leaves ReceiveUntil()
  // kThread from the moment the stream's thread is chosen to receive until it waits again.
  Receiving receiving_ ABSL_GUARDED_BY(mutex_) = Receiving::kThread;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the stream's thread is ending the stream
  // As of the last wait: too much is queued, the socket has no room.
  bool resting_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaits_room_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t armed_ ABSL_GUARDED_BY(mutex_) = 0;  // the events of the socket in watch_
  // The error that a thread in ReceiveUntil() got, or the status given to Finish().
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::net

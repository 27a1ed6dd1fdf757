// Calls of Wait() that are not answered yet.
//
// Not thread-safe: the server's lock guards it. It answers nothing itself: what is due is handed out, to be
// called outside that lock.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"

namespace cairn::ps {

class WaitList {
 public:
  using Reply = absl::AnyInvocable<void(absl::StatusOr<v1::WaitResponse>)>;
  using Calls = std::vector<absl::AnyInvocable<void()>>;
  // Whether a request's condition holds; fills in what the answer says beside, as what is missing.
  using Holds = absl::FunctionRef<bool(const v1::WaitRequest& request, v1::WaitResponse* response)>;

  // Callers beyond it are refused before they wait.
  static constexpr size_t kMostWaiting = 4096;
  bool full() const { return waiters_.size() >= kMostWaiting; }
  size_t size() const { return waiters_.size(); }

  // Waits from `now` for as long as the request asks, at most 30 s. Where that is over at once, or its
  // condition holds, moves the answer to `calls`: looks at this one alone.
  void Add(const v1::WaitRequest& request, TimePoint now, Reply reply, Holds holds, Calls& calls);
  // Moves the answers to `calls` whose condition holds, or whose time is up at `now`.
  void Collect(TimePoint now, Holds holds, Calls& calls);
  // Moves all answers to `calls`: `failure`.
  void Fail(const absl::Status& failure, Calls& calls);

 private:
  struct Waiter {
    v1::WaitRequest request;
    TimePoint deadline;
    Reply reply;
  };
  // Moves the answer to `calls` if it is due.
  static bool Settle(Waiter& waiter, TimePoint now, Holds holds, Calls& calls);
  std::vector<Waiter> waiters_;
};

}  // namespace cairn::ps

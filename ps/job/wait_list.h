// Calls of Wait() that have not been answered.
//
// Not thread-safe: guarded by the server's lock. Sends no answers: it returns those that are due, and the
// caller sends them outside that lock.
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
  // Whether a request's condition holds. Fills in the rest of the answer, such as what is missing.
  using Holds = absl::FunctionRef<bool(const v1::WaitRequest& request, v1::WaitResponse* response)>;

  // Limit on waiting callers; further callers are refused.
  static constexpr size_t kMaxWaiting = 4096;
  bool full() const { return waiters_.size() >= kMaxWaiting; }
  size_t size() const { return waiters_.size(); }

  // Adds a call that waits from `now` for the time that the request gives, at most 30 s. If the condition
  // holds or the time is 0, moves the answer to `calls` at once. Examines only this request.
  void Add(const v1::WaitRequest& request, TimePoint now, Reply reply, Holds holds, Calls& calls);
  // Moves the answers whose condition holds, or whose deadline has passed at `now`, to `calls`.
  void Collect(TimePoint now, Holds holds, Calls& calls);
  // Moves all answers to `calls`, with `failure`.
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

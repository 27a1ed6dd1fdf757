// Calls of Wait() that have not been answered, and the conditions that they wait for.
//
// Not thread-safe: guarded by the lock of its owner, HostedJob. Sends no answers: it returns those that are
// due, and the caller sends them outside that lock.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "ps/job/job_lifecycle.h"

namespace cairn::ps {

class WaitList {
 public:
  using Reply = absl::AnyInvocable<void(absl::StatusOr<v1::WaitResponse>)>;
  using Calls = std::vector<absl::AnyInvocable<void()>>;

  // The conditions are those of the job in `lifecycle`, which must outlive this object and is guarded by the
  // same lock. `server`: "ps/0", for messages.
  WaitList(const JobLifecycle& lifecycle, std::string server)
      : lifecycle_(lifecycle), server_(std::move(server)) {}

  // When a call that waits from `now` is answered at the latest: after at most 30 s. NaN means no wait.
  static TimePoint DeadlineFor(double wait_seconds, TimePoint now);
  // Limit on waiting callers; further callers are refused.
  static constexpr size_t kMaxWaiting = 4096;
  size_t size() const { return waiters_.size(); }

  // Adds a call that waits from `now` until DeadlineFor() the time that the request gives. If the condition
  // holds, the time is 0, or the call is refused, moves the answer to `calls` at once. Examines only this
  // request.
  void Add(const v1::WaitRequest& request, TimePoint now, Reply reply, Calls& calls);
  // Moves the answers whose condition holds, or whose deadline has passed at `now`, to `calls`; all answers if
  // the job has failed.
  void Collect(TimePoint now, Calls& calls);
  // Moves all answers to `calls`, with `failure`.
  void Fail(const absl::Status& failure, Calls& calls);

 private:
  struct Waiter {
    v1::WaitRequest request;
    TimePoint deadline;
    Reply reply;
  };
  // UNAVAILABLE if this server stops or does not serve the shard; the failure of a failed job.
  // RESOURCE_EXHAUSTED if too many calls wait.
  absl::Status CheckMayWait() const;
  // Whether the condition of `request` holds. Fills in the rest of the answer: what is missing, and the work.
  bool Holds(const v1::WaitRequest& request, v1::WaitResponse* response) const;
  bool HasWork(int worker, v1::WaitResponse* response) const;
  // Moves the answer to `calls` if it is due.
  bool Settle(Waiter& waiter, TimePoint now, Calls& calls) const;

  const JobLifecycle& lifecycle_;
  const std::string server_;
  std::vector<Waiter> waiters_;
};

}  // namespace cairn::ps

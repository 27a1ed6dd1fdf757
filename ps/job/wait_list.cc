#include "ps/job/wait_list.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cairn::ps {
namespace {

constexpr double kLongestWaitSeconds = 30;

}  // namespace

void WaitList::Add(const v1::WaitRequest& request, TimePoint now, Reply reply, Holds holds, Calls& calls) {
  // NaN means no wait.
  const double seconds =
      request.wait_seconds() > 0 ? std::min(request.wait_seconds(), kLongestWaitSeconds) : 0;
  Waiter waiter = {request, now + FromSeconds(seconds), std::move(reply)};
  if (!Settle(waiter, now, holds, calls)) waiters_.push_back(std::move(waiter));
}

bool WaitList::Settle(Waiter& waiter, TimePoint now, Holds holds, Calls& calls) {
  v1::WaitResponse response;
  response.set_holds(holds(waiter.request, &response));
  if (!response.holds() && now < waiter.deadline) return false;
  calls.push_back([reply = std::move(waiter.reply), response]() mutable { reply(std::move(response)); });
  return true;
}

void WaitList::Collect(TimePoint now, Holds holds, Calls& calls) {
  std::vector<Waiter> still;
  for (Waiter& waiter : waiters_) {
    if (!Settle(waiter, now, holds, calls)) still.push_back(std::move(waiter));
  }
  waiters_ = std::move(still);
}

void WaitList::Fail(const absl::Status& failure, Calls& calls) {
  for (Waiter& waiter : waiters_) {
    calls.push_back([reply = std::move(waiter.reply), failure]() mutable { reply(failure); });
  }
  waiters_.clear();
}

}  // namespace cairn::ps

#include "ps/job/wait_list.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

constexpr double kLongestWaitSeconds = 30;

}  // namespace

TimePoint WaitList::DeadlineFor(double wait_seconds, TimePoint now) {
  return now + FromSeconds(wait_seconds > 0 ? std::min(wait_seconds, kLongestWaitSeconds) : 0);
}

void WaitList::Add(const v1::WaitRequest& request, TimePoint now, Reply reply, Calls& calls) {
  if (absl::Status refused = CheckMayWait(); !refused.ok()) {
    calls.push_back([reply = std::move(reply), refused = std::move(refused)]() mutable { reply(refused); });
    return;
  }
  Waiter waiter = {request, DeadlineFor(request.wait_seconds(), now), std::move(reply)};
  if (!Settle(waiter, now, calls)) waiters_.push_back(std::move(waiter));
}

absl::Status WaitList::CheckMayWait() const {
  if (lifecycle_.shut_down()) return absl::UnavailableError("the server is stopping");
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckServes());
  if (lifecycle_.state() == v1::STATE_FAILED) return lifecycle_.failure();
  if (waiters_.size() < kMaxWaiting) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " calls of Wait are waiting"));
}

bool WaitList::Holds(const v1::WaitRequest& request, v1::WaitResponse* response) const {
  const v1::State state = lifecycle_.state();
  ActiveJob* const job = lifecycle_.job().get();
  std::string* const missing = response->mutable_missing();
  switch (request.condition()) {
    case v1::CONDITION_READY:
      *missing = lifecycle_.WhatReadyAwaits();
      return state == v1::STATE_READY || state == v1::STATE_FINISHED;
    case v1::CONDITION_ALL_OTHERS_LEFT:
      if (state == v1::STATE_EMPTY) {  // former members joined an earlier process of this server
        *missing = "the job: this server has none";
        return false;
      }
      return job == nullptr || job->members().AllOthersLeft(request.worker(), missing);
    case v1::CONDITION_WORK:
      return HasWork(request.worker(), response);
    case v1::CONDITION_OVER:
      *missing = "the chief";
      return state == v1::STATE_FINISHED;
    default:
      *missing = absl::StrCat("unknown condition ", static_cast<int>(request.condition()));
      return false;
  }
}

bool WaitList::HasWork(int worker, v1::WaitResponse* response) const {
  ActiveJob* const job = lifecycle_.job().get();
  if (job == nullptr || !job->hands_out_data()) {
    response->set_missing(absl::StrCat(server_, " does not assign data"));
    return false;
  }
  const Work work = *job->sequencer()->WorkOf(worker);
  *response->mutable_work() = ToProto(work);
  const int least = std::max(1, job->job().min_workers());
  response->set_missing(work.members < least
                            ? absl::StrCat("workers: ", work.members, " of at least ", least, " have joined")
                            : std::string("work that others have not finished yet"));
  return work.over || !work.work_items.empty();
}

bool WaitList::Settle(Waiter& waiter, TimePoint now, Calls& calls) const {
  v1::WaitResponse response;
  response.set_holds(Holds(waiter.request, &response));
  if (!response.holds() && now < waiter.deadline) return false;
  calls.push_back([reply = std::move(waiter.reply), response]() mutable { reply(std::move(response)); });
  return true;
}

void WaitList::Collect(TimePoint now, Calls& calls) {
  if (lifecycle_.state() == v1::STATE_FAILED) {
    Fail(lifecycle_.failure(), calls);
    return;
  }
  std::vector<Waiter> still;
  for (Waiter& waiter : waiters_) {
    if (!Settle(waiter, now, calls)) still.push_back(std::move(waiter));
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

#include "ps/job/retired_jobs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cairn::ps {

void RetiredJobs::Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) {
  job->QuitReplicating();
  if (job->sequencer() != nullptr) job->sequencer()->End(why.message());
  job->shard().Fail(why);
  MutexLock lock(mutex_);
  jobs_.push_back(std::move(job));
}

void RetiredJobs::Bury() {
  std::vector<std::shared_ptr<ActiveJob>> over;  // destroyed outside the lock
  MutexLock lock(mutex_);
  const auto first =
      std::partition(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.use_count() > 1; });
  over.assign(std::make_move_iterator(first), std::make_move_iterator(jobs_.end()));
  jobs_.erase(first, jobs_.end());
}

}  // namespace cairn::ps

// Jobs that a server has replaced or dropped, until no call and no session uses them any more.
//
// Thread-safe, with a lock under which no other is taken.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/core/mutex.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

class RetiredJobs {
 public:
  // Fails the calls that wait for `job` with `why`. Does not end the streams of `job`, because their end may
  // depend on the thread that calls this. Call it outside all locks.
  void Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Destroys the jobs that have no other user, which ends their streams. The owner calls it regularly.
  void Bury() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::vector<std::shared_ptr<ActiveJob>> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps

// The metrics of a worker: heartbeats report them to the servers, and --metrics_port serves them. They do not
// influence training. Owned by WorkerTask, written by the trainer and by snapshots, read by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/parameter_server.pb.h"
#include "client/gradients/wire_metrics.h"
#include "common/core/clock.h"
#include "common/core/history.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"
#include "worker/embedding/lookup_counters.h"

namespace cairn::worker {

class WorkerMetrics {
 public:
  // `clock` must outlive the object. `device`: "/gpu:0".
  WorkerMetrics(const Clock& clock, std::string device);

  struct Step {
    int64_t examples = 0;
    double input_seconds = 0, compute_seconds = 0, answer_seconds = 0;  // as in WorkerReport
    double loss = 0;                                                    // mean over the batch
    v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
    bool duplicate = false;
    int64_t staleness = 0;
    int64_t version = 0;  // the version after the step
    int64_t epoch = 0;    // counted from 1
  };
  void OnStep(const Step& step) ABSL_LOCKS_EXCLUDED(mutex_);

  // Counts an attempt to save a checkpoint of this version; `saved`: it succeeded.
  void OnCheckpoint(int64_t version, bool saved);

  // Means and rates since the previous call. Called by the heartbeat thread only.
  v1::WorkerReport Report() ABSL_LOCKS_EXCLUDED(mutex_);

  // The durations of the phases of every step.
  Distribution step_seconds{kSecondsLimits}, input_seconds{kSecondsLimits}, compute_seconds{kSecondsLimits},
      answer_seconds{kSecondsLimits};
  Counter examples, accepted, stale, refused, duplicate;
  Distribution staleness{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64};
  client::WireMetrics wire;  // updated by the client
  LookupCounters lookups;
  Counter rejoins;                              // times that the worker lost its membership and joined again
  Counter checkpoints, checkpoints_failed;      // on the chief
  std::atomic<int64_t> checkpoint_version{-1};  // version of the newest checkpoint; -1: none
  std::atomic<double> checkpoint_unix_seconds{0};

  struct Now {
    Step last;
    double examples_per_second = 0;       // over the last few seconds
    std::vector<History::Point> history;  // examples per second, and the loss
    std::string device;
    double up_seconds = 0;
  };
  Now now() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Clock& clock_;
  const std::string device_;
  const TimePoint started_;
  History history_;

  mutable Mutex mutex_;
  Step last_ ABSL_GUARDED_BY(mutex_);
  Step sums_ ABSL_GUARDED_BY(mutex_);  // sums over the steps since the last report
  int64_t sum_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint reported_at_ ABSL_GUARDED_BY(mutex_);
  // Sums for the next point of the history, and the examples per second at the last point.
  double loss_sum_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t point_steps_ ABSL_GUARDED_BY(mutex_) = 0, point_examples_ ABSL_GUARDED_BY(mutex_) = 0;
  TimePoint point_at_ ABSL_GUARDED_BY(mutex_);
  double rate_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::worker

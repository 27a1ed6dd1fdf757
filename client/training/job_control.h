// The chief's control of a job, between its steps and at the end. All calls come from the thread that makes
// the steps. Every call that waits has a time limit.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "common/core/clock.h"

namespace cairn::client {

// The state at one point of the job. `read` fetches the state, once, from any thread; the JobControl must
// outlive it. `tables` receives the states of the job's tables; null: they are not read.
struct TakenSnapshot {
  int64_t version = 0;
  std::function<absl::StatusOr<Snapshot>(const ReadLimit& limit, TableSink* tables)> read;
};

class JobControl {
 public:
  virtual ~JobControl() = default;

  // The learning rate of the next update.
  virtual absl::StatusOr<float> LearningRate() = 0;
  // Sets the learning rate of all later updates.
  virtual absl::Status SetLearningRate(float rate) = 0;
  // Ends the job before its last version, for all workers.
  virtual absl::Status EndTraining() = 0;
  // Replaces all values, also those of this worker's StepExchange. `tables`: null, or opens the states of the
  // embedding tables, which replace all rows; called for each attempt.
  virtual absl::Status Write(absl::Span<const float> values, const TableOpener& tables) = 0;
  // Takes a snapshot of values, optimizer slots and progress at the current point of the job.
  virtual absl::StatusOr<TakenSnapshot> TakeSnapshot(const StopCheck& stopped) = 0;
  // Returns OK if another snapshot may succeed after one failed with `failure`; otherwise `failure`, or the
  // error of the attempt to find out. Blocks briefly.
  virtual absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) = 0;

  // Waits until all other workers have finished or have failed.
  virtual absl::Status WaitForOthers(Duration timeout) = 0;
  // Ends training for all tasks.
  virtual absl::Status Finish() = 0;
  // The counters of accepted, stale and other pushes.
  virtual absl::StatusOr<v1::Counters> ServerCounters() = 0;
  // With dynamic sharding, at the end of the job: the examples that were missed and repeated.
  virtual absl::StatusOr<v1::DataPosition> UsedData() = 0;
};

}  // namespace cairn::client

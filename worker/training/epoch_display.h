// The display of the chief's current epoch: the running means over the chief's batches and the counters of the
// whole cluster, on the progress line and in TensorBoard.
//
// Owned by Chief; one thread.
#pragma once

#include <cstdint>

#include "cairn/v1/job.pb.h"
#include "client/training/job_control.h"
#include "common/core/clock.h"
#include "data/batch_loader.h"
#include "nn/metrics.h"
#include "nn/replica/replica.h"
#include "worker/report/progress.h"
#include "worker/tensorboard/tensorboard_writer.h"
#include "worker/training/trainer.h"

namespace cairn::worker {

class EpochDisplay {
 public:
  // `tensorboard` may be null. All arguments must outlive the object.
  EpochDisplay(const Trainer& trainer, client::JobControl& control, Progress& progress,
               TensorBoardWriter* tensorboard);

  // Sets the counters at the start of the run.
  void StartRun(const v1::Counters& counters);
  // The examples in the whole job's updates before this run.
  int64_t examples_before() const { return examples_before_; }

  // The trainer's epoch begins, with `members` members of a job with dynamic sharding.
  void Start(int members);
  void OnBatch(const data::Batch& batch, const nn::BatchView& view, const nn::BatchResult& result);
  void OnStep();
  // Other workers have computed the rest of the epoch's batches.
  void CompleteSteps();
  void End(const ShownMetrics& metrics);
  // Writes the epoch's record for TensorBoard, if there is one.
  void Record(const ShownMetrics& metrics);
  // The running means over the chief's batches.
  ShownMetrics metrics() const { return metrics_.Values(); }

 private:
  // Passes the counters of the whole cluster since the start of the epoch to the progress line.
  void ReportCluster();

  const Trainer& trainer_;
  const Trainer::Dependencies& training_;
  client::JobControl& control_;
  Progress& progress_;
  TensorBoardWriter* const tensorboard_;

  int64_t examples_before_ = 0;
  int64_t steps_ = 0;  // the chief's batches in the epoch
  nn::MetricSet metrics_;
  v1::Counters first_counters_;  // at the start of the epoch
  v1::Counters last_counters_;   // received last
  TimePoint start_, report_at_;
};

}  // namespace cairn::worker

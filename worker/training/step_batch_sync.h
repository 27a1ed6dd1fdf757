// The means over all workers' batches that a replica needs while it computes a step (nn::BatchSync), from the step of
// the exchange. Owned by the worker's task; the trainer sets the step, the replica's threads use it.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/training/step_exchange.h"
#include "common/core/status.h"
#include "common/system/fault_points.h"
#include "nn/layer/batch_sync.h"

namespace cairn::worker {

class StepBatchSync final : public nn::BatchSync {
 public:
  // Around each computation of gradients. `step` is valid until End(). `faults`: passes "mean"; may be null.
  void Begin(client::Step& step, FaultPoints* faults) {
    step_ = &step;
    faults_ = faults;
  }
  void End() { step_ = nullptr; }

  // Outside a step, as when a finished step is computed again to explain its error, this worker's values stay as they
  // are.
  absl::Status Mean(absl::Span<double> values) override {
    if (step_ == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(step_->MeanOverWorkers(values));
    if (faults_ != nullptr) faults_->Pass("mean");
    return absl::OkStatus();
  }

 private:
  client::Step* step_ = nullptr;
  FaultPoints* faults_ = nullptr;
};

}  // namespace cairn::worker

// The chief's control of a job without servers: requests travel with the records of its next step, everything
// else is this worker's own state.
//
// Owned by RingExchange; used by the thread that makes the steps.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/training/job_control.h"
#include "worker/allreduce/model_state.h"
#include "worker/allreduce/ring_steps.h"

namespace cairn::allreduce {

class RingControl final : public client::JobControl {
 public:
  // `finish`: ends the ring for all workers. The references must outlive this object.
  RingControl(ModelState& state, RingSteps& steps, std::function<absl::Status()> finish)
      : state_(state), steps_(steps), finish_(std::move(finish)) {}

  absl::StatusOr<float> LearningRate() override {
    return steps_.learning_rate_wanted().value_or(state_.learning_rate());
  }
  absl::Status SetLearningRate(float rate) override {
    steps_.WantLearningRate(rate);
    return absl::OkStatus();
  }
  absl::Status EndTraining() override { return steps_.End(); }
  // Writes the values of this worker only. For use after training.
  absl::Status Write(absl::Span<const float> values, const client::TableOpener&) override {
    state_.Write(values);
    return absl::OkStatus();
  }
  absl::StatusOr<client::TakenSnapshot> TakeSnapshot(const client::StopCheck&) override {
    return state_.TakeSnapshot();
  }
  absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) override { return failure; }
  // Returns at once, since the last step ended only when all workers had made it.
  absl::Status WaitForOthers(Duration) override { return absl::OkStatus(); }
  // Like RingExchange::AwaitEnd(), but if a worker is lost, waits until it has joined again, at most for the
  // step's time limit. If it does not return, this is only logged.
  absl::Status Finish() override { return finish_(); }
  absl::StatusOr<v1::Counters> ServerCounters() override { return state_.counters(); }
  absl::StatusOr<v1::DataPosition> UsedData() override { return v1::DataPosition(); }

 private:
  ModelState& state_;
  RingSteps& steps_;
  const std::function<absl::Status()> finish_;
};

}  // namespace cairn::allreduce

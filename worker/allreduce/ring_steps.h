// The steps of a worker without servers: the ring or the devices sum the workers' gradients, and each worker
// applies the optimizer to the mean.
//
//   BeginStep ─► Ring::Begin         Finish ─► Ring::Await ─► optimizer ─► version + 1
//   Announce  ─► Ring::Announce                    └─ ABORTED: a worker is lost; Reconnect, Join
//
// After the last step, Close() makes one more round without a gradient, which ends when all workers have made
// the last step.
//
// Owned by RingExchange. All calls come from one thread, except Announce (any thread). In steps on devices,
// Announce must also come from that thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/training/step_exchange.h"
#include "common/core/clock.h"
#include "worker/allreduce/device_group.h"
#include "worker/allreduce/model_state.h"
#include "worker/allreduce/ring.h"

namespace cairn::allreduce {

class RingSteps final : public client::StepExchange, private client::Step {
 public:
  struct Options {
    std::vector<std::string> names;  // [worker] "worker/1 at host:2222"
    Duration step_timeout;           // the limit for one step of all workers
  };
  // `state` and `devices` must outlive this object.
  RingSteps(ModelState& state, DeviceGroup& devices, Options options)
      : state_(state), devices_(devices), options_(std::move(options)) {}

  // --- For RingExchange and RingControl ---

  // Later steps are those of `ring`, which begins at the version of the state.
  void OnFormed(std::shared_ptr<Ring> ring) { ring_ = std::move(ring); }
  // Whether this worker makes another step.
  bool goes_on() const { return state_.version() < state_.final_version() && !finished_; }
  // Waits until all workers have the last values.
  absl::Status Close();
  // One more round without a gradient, at most for the step's time limit.
  absl::Status PassRound();
  TimePoint StepDeadline() const;
  // Requests for the next step, by the chief.
  void WantLearningRate(float rate) { learning_rate_wanted_ = rate; }
  std::optional<float> learning_rate_wanted() const { return learning_rate_wanted_; }
  // Ends training for all workers.
  absl::Status End();

  // --- StepExchange ---

  absl::Span<const float> parameters() const override { return state_.values(); }
  std::array<absl::Span<const float>, 2> parameter_buffers() const override { return state_.buffers(); }
  int64_t version() const override { return state_.version(); }
  bool finished() const override { return finished_; }
  const v1::Work& work() const override { return work_; }
  client::Step& BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) override;
  bool adds_up_on_device() const override { return devices_.sums(); }
  client::Step& BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean,
                                  int64_t examples) override;
  absl::Status AwaitWork() override { return absl::OkStatus(); }
  absl::Status Pull() override { return absl::OkStatus(); }

 private:
  // --- Step ---
  void Announce(int variable) override;
  absl::Status MeanOverWorkers(absl::Span<double> values) override;
  absl::Status SkipMeans() override;
  // Waits for the mean and applies the optimizer. INVALID_ARGUMENT, on all workers, naming the variable whose
  // mean is not finite.
  absl::StatusOr<client::StepResult> Finish() override;

  absl::StatusOr<Ring::Step> Await();
  // Adds the workers' names to the error of a wait.
  absl::Status Named(const absl::Status& status) const;

  ModelState& state_;
  DeviceGroup& devices_;
  const Options options_;
  std::shared_ptr<Ring> ring_;
  bool finished_ = false;
  bool end_wanted_ = false;
  std::optional<float> learning_rate_wanted_;
  const v1::Work work_;
};

}  // namespace cairn::allreduce

// The engine of a divided model: the instances of its stages, the devices of this process, and the schedule.
// A batch passes through the devices in micro-batches, so that the devices work at the same time. Some stages
// may run in other processes, which report their progress by Finish() and whose tensors arrive through
// RemoteStages.
//
//   one process:  PipelineReplica      several: worker/split, where each process has a Pipeline of its stages
//
// One thread creates and runs it. Other processes' reports may come from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/pipeline/pipeline_device.h"
#include "nn/pipeline/pipeline_schedule.h"
#include "nn/pipeline/remote_stages.h"
#include "nn/pipeline/stage_instances.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/gradient_queue.h"

namespace cairn::nn {

class Pipeline {
 public:
  struct Options {
    const Model& model;
    Objective objective;
    absl::Span<DeviceThread* const> threads;  // [device of this process]; each runs at least one node
    PipelineLocations locations;
    // The number of micro-batches of a batch. A batch with fewer examples has one micro-batch per example.
    int64_t micro_batches = 1;
    TraceRecorder* trace = nullptr;         // may be null
    RemoteStages* remote_stages = nullptr;  // null if all stages are in this process
  };
  // Model, threads, trace and `remote_stages` must outlive the pipeline. UNIMPLEMENTED for devices that
  // compute in float16, since their loss scaling needs the whole model. UNIMPLEMENTED if an input needs a gradient
  // and several stages read it, or any stage is in another process.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Create(Options options);
  ~Pipeline();

  struct Call {
    // The parameters of this process's stages, in the model's flat order.
    absl::Span<const float> parameters;
    // [model input] The inputs of the whole batch; only those that this process's stages read are needed.
    absl::Span<const TensorView> inputs;
    // Includes targets and weights if the last stage is in this process, and the destinations of input gradients.
    BatchView batch;
    absl::Span<float> gradients;  // laid out like `parameters`; empty in an evaluation
    bool training = false;
    // [examples, output_shape], if the last stage is in this process.
    float* outputs = nullptr;
    int others = 0;  // the number of processes that will call OtherDone()
  };
  struct Result {
    LossTotals sums{};   // set if the last stage is in this process
    double penalty = 0;  // the sum of the penalties of this process's stages
  };
  // Computes this process's stages of a batch. `started` is called before any computation: from then until
  // Run() returns, reports of other processes are accepted. `on_gradient`: see Replica::ForwardBackward().
  absl::StatusOr<Result> Run(const Call& call, absl::FunctionRef<void()> started,
                             absl::FunctionRef<void(int variable)> on_gradient);

  // --- Reports of other processes, ignored unless a call is running ---
  // Another process has finished this task, and all of its tensors that this process needs have arrived.
  void Finish(int stage, int micro_batch, bool backward) ABSL_LOCKS_EXCLUDED(mutex_);
  // A gradient that another process computes has arrived.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  void OtherDone() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the call: no more tasks are started, and Run() returns the first failure's status when the running
  // tasks are done.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // The tensors that other processes send for a batch, and the number of floats in each.
  std::vector<std::pair<StageTensor, int64_t>> ArrivalsOf(int64_t examples) const;
  const PipelineShape& shape() const { return shape_; }

  // See Replica.
  absl::Status Pin(absl::Span<const float> host);
  void Unpin();
  bool pins() const { return PinningThread() != nullptr; }

 private:
  // The stage instances and schedules for one batch size.
  struct Prepared {
    StageInstances instances;
    PipelineSchedule training, evaluation;
  };

  // The first device with its own memory, or null. Memory that this device pins is pinned for all devices.
  DeviceThread* PinningThread() const;
  // The state that other processes' reports update during a call.
  struct Running {
    PipelineSchedule* schedule;
    GradientQueue* gradient_queue;
    // The number of processes that have not called OtherDone(). After a failure nothing waits for them.
    int others;
  };

  explicit Pipeline(const Options& options);
  absl::Status CheckInputGradients() const;
  absl::Status MakeDevices();
  absl::StatusOr<Prepared*> PreparedFor(int64_t examples);
  void DropOthers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunDevice(size_t device, const Call& call, StageInstances& instances, PipelineSchedule& schedule,
                 GradientQueue& gradient_queue);
  // Runs `work` on each device's thread, one device after another, so that everything is created in a fixed
  // order.
  template <typename Work>
  void OnEach(const Work& work);
  template <typename Work>
  void ForStagesOf(size_t device, const Work& work) const;
  // Returns the error of the first device that failed; OK if no device failed.
  absl::Status FirstFault(const std::vector<absl::Status>& statuses) const;

  const PipelineShape shape_;
  const std::vector<DeviceThread*> threads_;
  std::vector<std::unique_ptr<PipelineDevice>> pipeline_devices_;  // [device]; used by the device's thread
  const int64_t micro_batches_;
  std::map<int64_t, std::unique_ptr<Prepared>> prepared_;  // [batch size]
  DeviceThread* pinned_by_ = nullptr;
  std::vector<std::unique_ptr<kernels::PinnedMemory>> pinned_;  // used by the thread of `pinned_by_`

  Mutex mutex_;
  std::optional<Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::nn

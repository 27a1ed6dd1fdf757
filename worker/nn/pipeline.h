// The engine of a divided model: its parts' cells, the devices of this process, and the schedule that they
// work by. A batch passes the devices in micro-batches, so that they work at the same time. Some of the parts
// may be other processes': what these have done, and what they have computed, comes in by Finish() and
// Elsewhere.
//
//   one process:  PipelineReplica      several: worker/split, where each has a Pipeline of its own parts
//
// Made and run by one thread; what the others say comes from any.
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
#include "worker/nn/announcer.h"
#include "worker/nn/device_thread.h"
#include "worker/nn/elsewhere.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/pipeline_cells.h"
#include "worker/nn/pipeline_lane.h"
#include "worker/nn/pipeline_schedule.h"

namespace cairn::nn {

class Pipeline {
 public:
  struct Options {
    const Model& model;
    LossSpec loss;
    absl::Span<DeviceThread* const> threads;  // [device of this process] each has a node
    PipelinePlaces places;
    int64_t micro_batches = 1;       // of a batch, or fewer where it has fewer examples
    TraceRecorder* trace = nullptr;  // may be
    Elsewhere* elsewhere = nullptr;  // null where all parts are here
  };
  // Model, threads, trace and `elsewhere` must outlive it. UNIMPLEMENTED for devices that compute in float16,
  // which scale the loss of a whole model.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Create(Options options);
  ~Pipeline();

  struct Call {
    absl::Span<const float> parameters;     // those of our parts, in the model's flat order
    absl::Span<const float* const> inputs;  // [model input] of the whole batch, those that our parts read
    BatchView batch;                        // with targets and weights where the last part is here
    absl::Span<float> gradients;            // as parameters; empty in an evaluation
    bool training = false;
    float* outputs = nullptr;  // [examples, output_shape], where the last part is here
    int others = 0;            // so many processes will say OtherDone()
  };
  struct Result {
    kernels::LossSums sums{};  // where the last part is here
    double penalty = 0;        // of our parts
  };
  // Does our parts of a batch. `started` is called before anything is computed: from there until Run()
  // returns, the others are heard. `on_gradient`: Replica::ForwardBackward().
  absl::StatusOr<Result> Run(const Call& call, absl::FunctionRef<void()> started,
                             absl::FunctionRef<void(int variable)> on_gradient);

  // What the others say while a call runs; otherwise it is not heard. Another process has done this, and all
  // of it that we need is here.
  void Finish(int part, int micro_batch, bool backward) ABSL_LOCKS_EXCLUDED(mutex_);
  // A gradient that another process computes is there.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  void OtherDone() ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing new is begun; Run() returns when what is under way is done.
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // What other processes send of a batch, and how many floats of each.
  std::vector<std::pair<Crossing, int64_t>> ArrivalsOf(int64_t examples) const;
  const PipelineShape& shape() const { return shape_; }

  // Of Replica.
  absl::Status Pin(absl::Span<const float> host);
  void Unpin();
  bool pins() const { return PinningThread() != nullptr; }

 private:
  // What a batch size needs.
  struct Prepared {
    PipelineCells cells;
    PipelineSchedule training, evaluation;
  };

  // Of the first device with memory of its own; it is the same memory for all that copy from it. Null when
  // none has.
  DeviceThread* PinningThread() const;
  // What the others are heard by.
  struct Running {
    PipelineSchedule* schedule;
    Announcer* announcer;
    int others;  // that have not said OtherDone(); nobody waits for them where something failed
  };

  explicit Pipeline(const Options& options);
  absl::Status MakeLanes();
  absl::StatusOr<Prepared*> PreparedFor(int64_t examples);
  void DropOthers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunDevice(size_t device, const Call& call, PipelineCells& cells, PipelineSchedule& schedule,
                 Announcer& announcer);
  // Runs on every device's thread, one after another: what is made is made in one order.
  template <typename Work>
  void OnEach(const Work& work);
  template <typename Work>
  void ForPartsOf(size_t device, const Work& work) const;
  // Of the first device's that has one.
  absl::Status FirstFault(const std::vector<absl::Status>& statuses) const;

  const PipelineShape shape_;
  const std::vector<DeviceThread*> threads_;
  std::vector<std::unique_ptr<PipelineLane>> lanes_;  // [device] its thread's
  const int64_t micro_batches_;
  std::map<int64_t, std::unique_ptr<Prepared>> prepared_;  // [batch size]
  DeviceThread* pinned_by_ = nullptr;
  std::vector<std::unique_ptr<kernels::PinnedMemory>> pinned_;  // its thread's

  Mutex mutex_;
  std::optional<Running> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::nn

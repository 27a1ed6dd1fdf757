// The instances of a divided model's stages for one batch size, [stage][micro-batch], and the work of each.
// The thread of a stage's device creates and runs them. Threads of neighbouring stages read an instance once
// the schedule reports it done.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/pipeline/pipeline_device.h"
#include "nn/pipeline/remote_stages.h"
#include "nn/replica/pipeline_stage.h"

namespace cairn::nn {

// Where the nodes of a model are computed. A location is a device of one process, and a
// stage is a run of nodes with the same location.
struct PipelineLocations {
  // Returns locations that are all devices of this process.
  static PipelineLocations OfDevices(absl::Span<const int> device_of);

  std::vector<int> location_of;  // [node]
  std::vector<int> device_of;    // [location] the device of this process; -1: in another process
  std::vector<int> task_of;      // [location] the task whose process computes there
};

// The state that all batch sizes share. Constant after construction.
struct PipelineShape {
  PipelineShape(const Model& model, const Objective& objective, const PipelineLocations& locations,
                TraceRecorder* trace = nullptr, RemoteStages* remote_stages = nullptr);

  // A stage's input that reads an output.
  struct Reader {
    int stage = 0, input = 0;
  };
  // The tensors of a stage that go to another process.
  struct Export {
    int task = 0;
    std::vector<int> slots;  // outputs, or inputs whose gradients are sent; ascending
  };

  const Model& model;
  const Objective objective;
  TraceRecorder* const trace;
  RemoteStages* const remote_stages;
  std::vector<PipelineStage> stages;
  std::vector<int> device_of_stage;  // -1: in another process
  std::vector<int> task_of_stage;
  int task = 0;                               // the task of this process
  std::vector<std::vector<int>> stages_with;  // [variable of the model] its stages, ascending
  // [stage][output] The readers that return a gradient, last stage first. Their gradients are added in this
  // order.
  std::vector<std::vector<std::vector<Reader>>> readers;
  // [stage][output] whether another device reads it.
  std::vector<std::vector<bool>> leaves;
  std::vector<std::vector<Export>> outputs_to, input_gradients_to;  // [stage] in ascending order of task

  bool same_device(int a, int b) const {
    return device_of_stage[static_cast<size_t>(a)] == device_of_stage[static_cast<size_t>(b)];
  }
  bool is_here(int stage) const { return device_of_stage[static_cast<size_t>(stage)] >= 0; }
  // A tensor that other processes send for each micro-batch.
  struct Import {
    StageTensor what{};  // without the micro-batch
    int64_t row = 0;     // floats per example
  };
  std::vector<Import> Imports() const;
};

class StageInstances {
 public:
  // The inputs of one call, and where its results go.
  struct Call {
    absl::Span<const TensorView> inputs;  // [model input] of the whole batch, host memory
    BatchView batch;                      // with the destinations of input gradients
    bool training = false;
    float* outputs = nullptr;  // [examples, output_shape], host memory
  };

  StageInstances(const PipelineShape& shape, int64_t examples, int64_t micro_batches);

  int micro_batches() const { return static_cast<int>(begins_.size()) - 1; }
  int64_t examples() const { return begins_.back(); }

  // Each of these functions handles one stage. Must be called on the thread of the stage's device.
  absl::Status Make(int stage, PipelineDevice& pipeline_device);
  void Destroy(int stage);
  absl::Status Forward(int stage, int micro_batch, const Call& call, PipelineDevice& pipeline_device);
  absl::Status Backward(int stage, int micro_batch, const Call& call, PipelineDevice& pipeline_device);

  // Valid when all devices are synchronized.
  LossTotals sums() const;
  double penalty() const;

 private:
  int64_t SizeOf(int micro_batch) const {
    return begins_[static_cast<size_t>(micro_batch) + 1] - begins_[static_cast<size_t>(micro_batch)];
  }
  StageInstance& At(int stage, int micro_batch) {
    return instances_[static_cast<size_t>(stage)][static_cast<size_t>(micro_batch)];
  }
  PipelineDevice::Contribution ContributionOf(int variable, int stage, int micro_batch) const;
  absl::Status MakeInstance(int stage, int micro_batch, PipelineDevice& pipeline_device);
  absl::Status MakeBorders(int stage, StageInstance& instance, kernels::Device& device) const;
  absl::Status GatherInputs(int stage, int micro_batch, const Call& call);
  absl::Status GatherGradients(int stage, int micro_batch, PipelineDevice& pipeline_device);
  absl::Status SendToRemoteStages(int stage, int micro_batch, bool backward);
  // The functions below handle gradients with respect to inputs of the model. `input` is in the numbering of
  // Node::inputs.
  // The micro-batch's part of the caller's memory for a gradient.
  absl::Span<float> InputGradientRows(int input, int micro_batch, const Call& call) const;
  // Sets where the backward pass writes the gradients.
  void SetInputGradients(int stage, int micro_batch, const Call& call);
  // Copies a gradient that the backward pass has written to the caller's memory, unless it is there.
  absl::Status TakeInputGradient(int input, StageTensor at, const Call& call,
                                 PipelineDevice& pipeline_device);
  absl::Status RunLoss(StageInstance& instance, int micro_batch, const Call& call,
                       PipelineDevice& pipeline_device);

  const PipelineShape& shape_;
  const std::vector<int64_t> begins_;                  // start of each micro-batch, and the end of the last
  std::vector<std::vector<StageInstance>> instances_;  // [stage][micro-batch]
};

}  // namespace cairn::nn

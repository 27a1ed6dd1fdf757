// The cells of a divided model for one batch size, [part][micro-batch], and what runs in one of them. Made
// and run part by part, by the thread of the part's device; a cell is read by its neighbours' threads when
// the schedule says that it is done.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/nn/batch.h"
#include "worker/nn/elsewhere.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/model_part.h"
#include "worker/nn/pipeline_lane.h"

namespace cairn::nn {

// Where the nodes of a model compute. A part is a run of nodes of one place.
struct PipelinePlaces {
  // All in this process, each device a place.
  static PipelinePlaces OfDevices(absl::Span<const int> device_of);

  std::vector<int> place_of;   // [node]
  std::vector<int> device_of;  // [place] of this process; -1: another one's
  std::vector<int> task_of;    // [place] the process
};

// What all batch sizes share. Constant after construction.
struct PipelineShape {
  PipelineShape(const Model& model, const LossSpec& loss, const PipelinePlaces& places,
                TraceRecorder* trace = nullptr, Elsewhere* elsewhere = nullptr);

  // Someone who reads an output: a part's input.
  struct Reader {
    int part = 0, input = 0;
  };
  // What of a part's work goes to another process.
  struct Export {
    int task = 0;
    std::vector<int> slots;  // outputs, or inputs whose gradient goes; rising
  };

  const Model& model;
  const LossSpec loss;
  TraceRecorder* const trace;
  Elsewhere* const elsewhere;
  std::vector<ModelPart> parts;
  std::vector<int> device_of_part;  // -1: another process'
  std::vector<int> task_of_part;
  int task = 0;                              // this process
  std::vector<std::vector<int>> parts_with;  // [variable of the model] rising
  // [part][output] those that give a gradient back, the last part first: the order in which they are added.
  std::vector<std::vector<std::vector<Reader>>> readers;
  std::vector<std::vector<bool>> leaves;                            // [part][output] another device reads it
  std::vector<std::vector<Export>> outputs_to, input_gradients_to;  // [part] by rising task

  bool same_device(int a, int b) const {
    return device_of_part[static_cast<size_t>(a)] == device_of_part[static_cast<size_t>(b)];
  }
  bool is_here(int part) const { return device_of_part[static_cast<size_t>(part)] >= 0; }
  // What other processes send us, of which a batch has its examples of each micro-batch.
  struct Import {
    Crossing what{};  // but for the micro-batch
    int64_t row = 0;  // floats of an example
  };
  std::vector<Import> Imports() const;
};

class PipelineCells {
 public:
  // One call: what is given, and where the results go.
  struct Call {
    absl::Span<const float* const> inputs;  // [model input] of the whole batch, host memory
    BatchView batch;
    bool training = false;
    float* outputs = nullptr;  // [examples, output_shape], host memory
  };

  PipelineCells(const PipelineShape& shape, int64_t examples, int64_t micro_batches);

  int micro_batches() const { return static_cast<int>(begins_.size()) - 1; }
  int64_t examples() const { return begins_.back(); }

  // Of one part, on the thread of its device, `lane`.
  absl::Status Make(int part, PipelineLane& lane);
  void Destroy(int part);
  absl::Status Forward(int part, int micro_batch, const Call& call, PipelineLane& lane);
  absl::Status Backward(int part, int micro_batch, PipelineLane& lane);

  // When all devices are synchronized.
  kernels::LossSums sums() const;
  double penalty() const;

 private:
  int64_t SizeOf(int micro_batch) const {
    return begins_[static_cast<size_t>(micro_batch) + 1] - begins_[static_cast<size_t>(micro_batch)];
  }
  Cell& At(int part, int micro_batch) {
    return cells_[static_cast<size_t>(part)][static_cast<size_t>(micro_batch)];
  }
  PipelineLane::Contribution ContributionOf(int variable, int part, int micro_batch) const;
  absl::Status MakeCell(int part, int micro_batch, PipelineLane& lane);
  absl::Status MakeBorders(int part, Cell& cell, kernels::Device& device) const;
  absl::Status GatherInputs(int part, int micro_batch, const Call& call);
  absl::Status GatherGradients(int part, int micro_batch, PipelineLane& lane);
  absl::Status SendElsewhere(int part, int micro_batch, bool backward);
  absl::Status RunLoss(Cell& cell, int micro_batch, const Call& call, PipelineLane& lane);

  const PipelineShape& shape_;
  const std::vector<int64_t> begins_;     // of the micro-batches, and the end
  std::vector<std::vector<Cell>> cells_;  // [part][micro-batch]
};

}  // namespace cairn::nn

// Memory for the gradients of a plan's activations, and the sums of gradients that several steps write.
//
// Gradients of activations are short-lived, so each buffer serves several of them, one after another. If a
// value or a variable has several users, the first of them in the order of the backward pass writes the
// gradient. The others write their gradients to separate memory, and each is then added.
//
// The gradient of an input of the model that needs one is a result: it is written to memory that the caller gives.
//
// Owned by a Plan, used by its thread. A run allocates nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/model.h"
#include "nn/replica/pipeline_stage.h"
#include "nn/replica/step_graph.h"

namespace cairn::nn {

class GradientBuffers {
 public:
  // Addresses of the gradients of the model's variables in device memory, [variable of the model]; null for
  // variables that the stage lacks.
  using Gradients = absl::Span<float* const>;

  // The gradients that the backward pass of one step writes.
  struct Written {
    // [input] True if the value's gradient already exists when this step's backward pass runs, so this step
    // adds to it.
    std::vector<bool> adds{};
    // [input] True if the gradient by this step is zero and the value's gradient already exists: nothing is written.
    std::vector<bool> skips{};
    // [variable of the step] True if a later step has written a gradient of the variable, so this step adds
    // to it.
    std::vector<bool> adds_to_variable{};
    // Variables of the model whose gradients this step's backward pass is the first to write.
    std::vector<int> begins{};
    // Variables of the model whose gradients are complete after this step's backward pass.
    std::vector<int> completes{};
    // The own_inputs() whose gradients are complete after this step's backward pass.
    std::vector<int> completes_inputs{};
    // [input], [variable of the step] Where the step's op writes, set by Bind(); null if not needed.
    std::vector<float*> inputs{}, variables{};
  };

  // `graph`, `model` and `device` must outlive the buffers, and `graph` may not get other steps.
  static absl::StatusOr<std::unique_ptr<GradientBuffers>> Create(const StepGraph& graph, const Model& model,
                                                                 const PipelineStage& stage,
                                                                 kernels::Device& device);

  // The inputs of the stage that are inputs of the model and need a gradient. SetInput() must be called for each of
  // them before the first backward pass.
  const std::vector<int>& own_inputs() const { return own_inputs_; }
  // Sets where backward passes write the gradient of one of `own_inputs()`: device memory of the input's size.
  void SetInput(size_t input, float* to) { addresses_[static_cast<size_t>(buffer_of_[input])] = to; }

  // The gradient of a value; null if none is needed.
  float* of(int value) {
    const int buffer = buffer_of_[static_cast<size_t>(value)];
    return buffer < 0 ? nullptr : addresses_[static_cast<size_t>(buffer)];
  }
  const Written& written(size_t step) const { return written_[step]; }

  // Sets where the op of this step writes. Valid until the next call for the step.
  const Written& Bind(size_t step, Gradients gradients);
  // Adds what this step's backward pass wrote to the gradients that existed before.
  absl::Status AddUp(size_t step, Gradients gradients);
  // Adds `addend` to the gradient of an output of the stage, if the stage is not the last.
  absl::Status AddToOutput(int output, const float* addend);

 private:
  using Sum = std::pair<kernels::ElementType, int64_t>;  // the type and floats of two arrays that are added

  GradientBuffers(const StepGraph& graph, const Model& model) : graph_(graph), model_(model) {}
  absl::Status Add(float* sum, const float* addend, Sum kind);

  const StepGraph& graph_;
  const Model& model_;
  std::vector<Written> written_;   // [step]
  std::vector<int> buffer_of_;     // [value] index of a buffer; -1: none
  std::vector<int> own_inputs_;    // ascending
  std::vector<float*> addresses_;  // [buffer] first those of `own_inputs_`, then those of `buffers_`
  std::vector<std::unique_ptr<kernels::DeviceMemory>> buffers_;
  std::unique_ptr<kernels::DeviceMemory> addend_;  // null if no step adds
  std::map<Sum, std::unique_ptr<kernels::NaryOp>> adders_;
};

}  // namespace cairn::nn

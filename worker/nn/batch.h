// What goes into a replica and what comes out, batch by batch; all of it host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "kernels/ops.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"

namespace cairn::nn {

// Examples, borrowed for the call.
struct BatchView {
  int64_t examples = 0;
  absl::Span<const float> inputs{};   // [examples, input_shape], row-major; several inputs side by side
  absl::Span<const float> targets{};  // [examples, the loss' targets per example]
  absl::Span<const float> weights{};  // [examples]; empty where every example weighs 1
  uint64_t seed = 0;                  // of what the step draws at random (dropout)
  int64_t first_example = 0;          // the first one's place in the worker's batch, likewise

  // `count` examples from `begin` on.
  BatchView Part(int64_t begin, int64_t count) const;
};

// What the network made of them.
struct BatchResult {
  kernels::LossSums sums{};
  absl::Span<const float> outputs{};  // [examples, output_shape], row-major; until the replica's next call
};

// INVALID_ARGUMENT where the batch, or what is given as parameters, is not what model and loss take.
absl::Status CheckBatch(const Model& model, const LossSpec& loss, absl::Span<const float> parameters,
                        const BatchView& batch);

// The same where `gradients` has no room for each parameter's.
absl::Status CheckGradients(const Model& model, absl::Span<const float> gradients);

// What a batch without examples comes to: zeros, all of which are told, last layer first.
void GiveNoGradients(const Model& model, absl::Span<float> gradients,
                     absl::FunctionRef<void(int variable)> on_gradient);

// The inputs of a model with several, which lie side by side in a batch's rows, one after another.
class InputSplitter {
 public:
  explicit InputSplitter(const Model& model) : model_(model), pointers_(model.inputs().size()) {}
  // [model input] [examples, shape], row-major; until the next call, and no longer than the batch's own.
  absl::Span<const float* const> Split(const BatchView& batch);
  // What that gave last.
  absl::Span<const float* const> last() const { return pointers_; }

 private:
  const Model& model_;
  AlignedBuffer split_;  // [input][examples][elements], where there are several inputs
  std::vector<const float*> pointers_;
};

// Where each of `parts` runs of examples, as even as can be and the longer ones first, begins, and the end:
// [parts + 1].
std::vector<int64_t> EvenParts(int64_t examples, int64_t parts);

}  // namespace cairn::nn

// The input and the result of a replica for one batch. All of it is host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/row_bags.h"

namespace cairn::nn {

// Where a replica writes gradients with respect to inputs, [input of the model] [examples, its shape].
using InputGradients = absl::InlinedVector<absl::Span<float>, 2>;

// Examples, borrowed for the call.
struct BatchView {
  int64_t examples = 0;
  TensorViews inputs{};               // [input of the model] [examples, its shape], of its type
  absl::Span<const float> targets{};  // [examples, targets per example that the loss needs]
  // [examples, Objective::WeightsPerExample()]; empty if every example weighs 1
  absl::Span<const float> weights{};
  uint64_t seed = 0;  // for random draws of the step (dropout)
  // The index of the first example in the worker's batch. Random draws depend on it.
  int64_t first_example = 0;
  // For ForwardBackward(): the destinations for inputs with ModelInput::needs_gradient, empty for other inputs.
  // May be left out if there are no such inputs.
  InputGradients input_gradients{};
  // For a replica that pools rows (Replica::pools_rows): the rows for the inputs that need a gradient. `inputs` has the
  // shapes of these without data, and `input_gradients` nothing for them. Null: they are given as other inputs.
  const RowBags* row_bags = nullptr;

  // `count` examples, beginning with `begin`. Not for a batch with row_bags.
  BatchView Part(int64_t begin, int64_t count) const;
};

// The results that the network computed from a batch.
struct BatchResult {
  LossTotals sums{};
  // [examples, output_shape], row-major; valid until the next call of the replica.
  absl::Span<const float> outputs{};
  // [table of row_bags] The gradients of its unique rows, [unique rows, width], if there are row_bags; valid as long.
  absl::Span<const absl::Span<const float>> row_gradients{};
};

// `model`, or the one of model.shorter() whose inputs have the shapes of the batch.
const Model& ModelFor(const Model& model, const BatchView& batch);

// The memory of a model's input for `examples` examples, in units of a float.
int64_t InputFloats(const ModelInput& input, int64_t examples);

// INVALID_ARGUMENT if the batch or `parameters` does not have the sizes that the model and the loss need.
absl::Status CheckBatch(const Model& model, const Objective& objective, absl::Span<const float> parameters,
                        const BatchView& batch);

// INVALID_ARGUMENT unless `gradients` has one element for each parameter, and the batch has memory for the gradient
// with respect to each input that needs one.
absl::Status CheckGradients(const Model& model, const BatchView& batch, absl::Span<const float> gradients);

// Produces the gradients of a batch without examples: sets all gradients to zero, and calls `on_gradient` for
// each variable, last layer first, and then for each input that needs a gradient.
void GiveNoGradients(const Model& model, absl::Span<float> gradients,
                     absl::FunctionRef<void(int gradient)> on_gradient);

// Divides `examples` into `parts` runs of nearly equal length, longer runs first. Returns the start of each
// run, and the end of the last: [parts + 1].
std::vector<int64_t> EvenParts(int64_t examples, int64_t parts);

}  // namespace cairn::nn

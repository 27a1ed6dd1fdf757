// Continues a sequence of tokens by a language model: one that gives, at each position of its window, a score for each
// token that may come next.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/random.h"
#include "nn/model.h"

namespace cairn::worker {

// How a token is drawn from its probabilities.
struct SamplingOptions {
  double temperature = 0;  // divides the logits; 0: the most probable token
  int64_t top_k = 0;       // only among the k most probable tokens; 0: all
  double top_p = 1;        // only among the fewest most probable tokens that have this probability together
  uint64_t seed = 0;
};

// Draws an id in [0, logits.size()), of which none may be NaN. Of equal logits the first counts as the larger one.
int64_t DrawToken(absl::Span<const float> logits, const SamplingOptions& options, Random& random);

struct GenerationRequest {
  const nn::Model& model;              // its variables include its tables
  absl::Span<const float> parameters;  // in the flat order of the model
  std::vector<int64_t> prompt;         // at least one token
  int64_t count = 0;                   // the number of tokens to add
  int64_t vocabulary = 0;              // only ids below this are drawn; 0: all
  // false: the model's outputs are probabilities. nullopt: they are if they are at least 0 and add up to 1.
  std::optional<bool> from_logits = true;
  SamplingOptions sampling{};
  int threads = 1;
};

// Calls `on_token` for each token that is added, as soon as it is drawn. Each is computed on the CPU from the last
// tokens that fit the model's window, filled up on the right, so the work for a token is that of a whole window.
// Only ids below `vocabulary` that have a row in the model's table are drawn. INVALID_ARGUMENT if the model has another
// form, if what fills up the window changes its output (it is not causal; checked if the prompt is shorter than the
// window), or if a token of the prompt is no such id.
absl::Status Generate(const GenerationRequest& request, absl::FunctionRef<void(int64_t token)> on_token);

}  // namespace cairn::worker

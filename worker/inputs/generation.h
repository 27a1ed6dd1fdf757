// Continues a sequence of tokens by a language model: one that gives, at each position of its window, a score for each
// token that may come next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
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
  const nn::Model& model;                     // its variables include its tables
  absl::Span<const float> parameters;         // in the flat order of the model
  std::vector<std::vector<int64_t>> prompts;  // at least one token each; continued one after the other
  std::vector<std::vector<int64_t>>
      sources{};                  // [prompt] what the encoder reads, for a model with one; else empty
  int64_t source_vocabulary = 0;  // the ids of sources are below this; 0: unknown
  std::string decoder_input{};    // the input that takes the tokens, as for TokenInputsOf()
  int64_t count = 0;              // the number of tokens to add to each prompt
  std::optional<int64_t> end{};   // generation ends before this token
  int64_t vocabulary = 0;         // only ids below this are drawn; 0: all
  // When the tokens are more than the window, its first `drop` tokens are dropped at once: at least 1, at most the
  // length of the window.
  int64_t drop = 1;
  // false: the model's outputs are probabilities. nullopt: they are if they are at least 0 and add up to 1.
  std::optional<bool> from_logits = true;
  SamplingOptions sampling{};
  // How errors name prompt i, or its source, if there are several: row_name, then first_row + i.
  std::string row_name = "row ";
  int64_t first_row = 0;
  // Above 1: the most probable text that beam search finds, instead of one token after another. `on_token` is called at
  // the end of a row.
  int64_t beams = 1;
  int threads = 1;
};

// Calls `on_token` for each token that is added, as soon as it is drawn; `row` is the index of the prompt. Scores are
// computed on the CPU, from the last tokens that fit the model's window. The text of a model with an encoder ends when
// the window is full. Only ids below `vocabulary` that have a row in the model's table are drawn. INVALID_ARGUMENT if
// the model has another form, if it is not causal (checked with the first prompt, if that is shorter than the window),
// or if a token of a prompt or source is no such id.
absl::Status Generate(const GenerationRequest& request,
                      absl::FunctionRef<void(size_t row, int64_t token)> on_token);

}  // namespace cairn::worker

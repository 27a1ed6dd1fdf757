// The scores that a model of language gives for the next token of a sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nn/model.h"

namespace cairn::worker {

// The inputs of such a model: indices in Model::inputs().
struct TokenInputs {
  size_t tokens = 0;
  std::optional<size_t> mask{};    // 1 for each token, 0 for what fills up the window
  std::optional<size_t> source{};  // ids that an encoder reads, filled up with id 0
};

// A single input has the tokens. Of two, the tokens are those of `decoder_input` or, if that is empty, of
// "decoder_inputs", and the other has the source; keras_hub's "token_ids" come with a "padding_mask". INVALID_ARGUMENT
// naming the inputs if the model has others, or if tokens and outputs do not have one length.
absl::StatusOr<TokenInputs> TokenInputsOf(const nn::Model& model, absl::string_view decoder_input);

struct ScoredModel {
  const nn::Model& model;
  absl::Span<const float> parameters;  // in the flat order of the model
  TokenInputs inputs{};
  size_t sequences = 1;  // that are scored together
  int threads = 1;

  int64_t length() const { return model.inputs()[inputs.tokens].shape[0]; }  // of the window
  // The ids of an input are below this; 0: any.
  int64_t rows_of(size_t input) const;
};

class TokenScores {
 public:
  using Tokens = absl::Span<const int64_t>;

  virtual ~TokenScores() = default;
  // Begins other sequences. `source` has at most as many ids as the input of the source; empty without that input.
  virtual absl::Status Begin(Tokens source) = 0;
  // The scores after the last token of each sequence, [sequence, scores]; valid until the next call. Sequences have the
  // same number of tokens, at least one and at most length().
  virtual absl::StatusOr<absl::Span<const float>> After(absl::Span<const Tokens> sequences) = 0;
  // Sequence i will go on from sequence from[i].
  virtual absl::Status Reorder(absl::Span<const int64_t> from) = 0;
};

// Computes each position once while sequences only get longer, and otherwise all positions again: by nn::Decoder if it
// can decode the model, or else as whole windows. `model` must outlive the result. INVALID_ARGUMENT if whole windows
// are necessary and the model is not causal: what fills up a window changes the scores after `tokens`.
absl::StatusOr<std::unique_ptr<TokenScores>> MakeTokenScores(const ScoredModel& model,
                                                             absl::Span<const int64_t> source,
                                                             absl::Span<const int64_t> tokens);

}  // namespace cairn::worker

// Synthetic pairs of sentences for models that translate, in two invented languages.
//
//   source   article adjective* noun  verb  article adjective* noun  [preposition article adjective* noun]
//   target   noun adjective* article  [noun adjective* article postposition]  noun adjective* article  verb
//
// The target has the subject first and the verb last; its adjectives, in the reverse order, and its articles follow the
// noun, and agree with its gender, which the source does not show, and with its number. The verb agrees with the number
// of the subject. So each word of the target follows from the source and the words before it. A seed gives the same
// files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn::data {

struct SyntheticTranslationOptions {
  int64_t train_rows = 10'000, test_rows = 1'000;
  uint64_t seed = 0;
};

inline constexpr int kTranslationLength = 16;                   // tokens of an example, with its padding
inline constexpr int kSourceTokens = 217, kTargetTokens = 377;  // with padding, start and end

// Writes, for train and test, x_SET_encoder_inputs.npy, x_SET_decoder_inputs.npy and y_SET.npy (int32 [rows,
// kTranslationLength]) into `directory`, which is created if missing. 0 is padding, 1 the start of a sentence and 2 its
// end. The encoder's inputs are the source, the decoder's inputs the start and the target, y the target and the end.
// encoder_inputs.json and decoder_inputs.json have the texts of the ids, in the form of tokens.json. sentences_SET.txt
// has the sources as text, one in each line.
//
// INVALID_ARGUMENT for rows outside [1, 1e7]; otherwise the system's error.
absl::Status WriteSyntheticTranslation(const std::string& directory,
                                       const SyntheticTranslationOptions& options);

}  // namespace cairn::data

// A synthetic text as files of tokens, whose best possible perplexity is known: a hidden chain draws its words.
//
// Words are made of syllables. Each word has 8 possible next words, of which the first has the probability 1/2, the
// second 1/4 and so on, and the last two have 1/128. A word ends with a blank or, once in 8 times, with a period and a
// line break. A token is a character. A seed gives the same files on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::data {

struct SyntheticTextOptions {
  int64_t train_tokens = 1'000'000, test_tokens = 100'000;
  int64_t words = 200;
  uint64_t seed = 0;
};

// Writes train.bin, test.bin (uint16) and tokens.json into `directory`, which is created if missing. Returns the
// perplexity of the test set's characters under the chain itself, which no model falls below except by chance.
// INVALID_ARGUMENT for numbers of tokens outside [1, 1e9] or of words outside [16, 20000]; otherwise the system's
// error.
absl::StatusOr<double> WriteSyntheticText(const std::string& directory, const SyntheticTextOptions& options);

}  // namespace cairn::data

// Synthetic reviews for models of sentiment: texts of invented words, of which every fifth has a hidden weight.
//
// A review has 10 to 39 words. A word of rank r is drawn with a probability in proportion to 1 / r. The label is 1 with
// the probability sigmoid(sum of the hidden weights of the words). A seed gives the same files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::data {

struct SyntheticReviewsOptions {
  int64_t train_rows = 20'000, test_rows = 4'000;
  int64_t words = 2'000;
  uint64_t seed = 0;
};

// Writes train.jsonl and test.jsonl into `directory`, which is created if missing: {"label": 1, "text": "Na jodi."}.
// Returns the accuracy on the test set of the label that the hidden weights make more probable, which no model exceeds
// except by chance. INVALID_ARGUMENT for rows outside [1, 1e8] or words outside [16, 20000]; otherwise the system's
// error.
absl::StatusOr<double> WriteSyntheticReviews(const std::string& directory,
                                             const SyntheticReviewsOptions& options);

}  // namespace cairn::data

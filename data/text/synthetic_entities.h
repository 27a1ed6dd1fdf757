// Synthetic sentences for models that find named entities, whose tags follow from the context of the words.
//
// A sentence consists of invented words. Some words are names, and whether a name is that of a person, that of a place
// or no name at all depends on the words around it, of which up to two may stand between:
//
//   | a person | one or two names behind a title, or before a verb of speech             |
//   | a place  | one to three names behind a preposition, or before a word for a place   |
//   | any      | a name that stands alone: each name has a tag that it has mostly          |
//
// Tags are those of BIO: the first name of a person is B-PER, the others are I-PER, and B-LOC and I-LOC for places. A
// seed gives the same files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::data {

struct SyntheticEntitiesOptions {
  int64_t train_rows = 5'000, test_rows = 1'000;
  int64_t words = 1'000;
  uint64_t seed = 0;
};

inline constexpr int kEntityLength = 24;  // tokens of an example, with its padding

// Accuracies on the test set, without padding.
struct EntityAccuracies {
  double best = 0;     // of the most probable tags, which no model exceeds except by chance
  double by_word = 0;  // of the tag that each word has most often in the training set
};

// Writes x_train.npy, y_train.npy, x_test.npy and y_test.npy (int32 [rows, kEntityLength]) and tokens.json into
// `directory`, which is created if missing. x has ids of words: 0 is padding, and 1 a word that does not occur in the
// training set. y has indices of tags, and 0 for padding. tokens.json has the texts of the ids and of the tags.
//
// INVALID_ARGUMENT for rows outside [1, 1e7] or words outside [100, 20000]; otherwise the system's error.
absl::StatusOr<EntityAccuracies> WriteSyntheticEntities(const std::string& directory,
                                                        const SyntheticEntitiesOptions& options);

}  // namespace cairn::data

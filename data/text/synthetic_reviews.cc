#include "data/text/synthetic_reviews.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "data/file/output_directory.h"
#include "data/text/invented_words.h"
#include "data/text/number_range.h"

namespace cairn::data {
namespace {

constexpr NumberRange kReviews = {"write", "reviews", 1, 100'000'000},
                      kReviewWords = {"make", "words", 16, 20'000};
constexpr uint32_t kShortestReview = 10, kLongestReview = 39;  // words of a review
constexpr float kWeighted = 0.2f;                              // the share of words with a weight

struct ReviewWord {
  std::string text;
  double weight = 0;
};

std::vector<ReviewWord> DrawReviewWords(const SyntheticReviewsOptions& options) {
  Random letters(options.seed, "reviews/words"), weights(options.seed, "reviews/weights");
  std::vector<ReviewWord> words;
  for (std::string& text : InventWords(letters, static_cast<size_t>(options.words))) {
    const bool weighted = weights.NextUniform() < kWeighted;
    const float weight = weights.NextNormal();
    words.push_back({std::move(text), weighted ? weight : 0});
  }
  return words;
}

// Writes `rows` reviews. Returns the share of labels that are the more probable ones.
absl::StatusOr<double> WriteSet(const std::vector<ReviewWord>& words, const std::string& directory,
                                const char* set, int64_t rows, uint64_t seed) {
  Random random(seed, absl::StrCat("reviews/", set));
  const double log_words = std::log(static_cast<double>(words.size()));
  std::string lines;
  int64_t probable = 0;
  for (int64_t row = 0; row < rows; ++row) {
    double score = 0;
    std::string text;
    for (uint32_t left = kShortestReview + random.NextBelow(kLongestReview - kShortestReview + 1); left > 0;
         --left) {
      const auto rank = static_cast<size_t>(std::exp(random.NextUniform() * log_words));
      const ReviewWord& word = words[std::min(rank, words.size()) - 1];
      score += word.weight;
      absl::StrAppend(&text, word.text, left > 1 ? " " : ".");
    }
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    const bool label = random.NextUniform() < 1 / (1 + std::exp(-score));
    probable += label == (score > 0) ? 1 : 0;
    absl::StrAppend(&lines, "{\"label\": ", label ? 1 : 0, ", \"text\": \"", text, "\"}\n");
  }
  CAIRN_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", set, ".jsonl"), lines));
  return static_cast<double>(probable) / static_cast<double>(rows);
}

}  // namespace

absl::StatusOr<double> WriteSyntheticReviews(const std::string& directory,
                                             const SyntheticReviewsOptions& options) {
  for (const int64_t rows : {options.train_rows, options.test_rows})
    CAIRN_RETURN_IF_ERROR(kReviews.Check(rows));
  CAIRN_RETURN_IF_ERROR(kReviewWords.Check(options.words));
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  const std::vector<ReviewWord> words = DrawReviewWords(options);
  CAIRN_RETURN_IF_ERROR(WriteSet(words, directory, "train", options.train_rows, options.seed).status());
  return WriteSet(words, directory, "test", options.test_rows, options.seed);
}

}  // namespace cairn::data

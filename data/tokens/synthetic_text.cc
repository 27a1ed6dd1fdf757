#include "data/tokens/synthetic_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/files.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "data/file/output_directory.h"
#include "data/text/invented_words.h"
#include "data/tokens_json.h"

namespace cairn::data {
namespace {

constexpr absl::string_view kCharacters = "\n .abcdefghijklmnopqrstuvwxyz";
constexpr size_t kNextWords = 8;
constexpr uint32_t kWeights = 128;  // of all next words together
constexpr uint32_t kSentenceEnd = 8;

class WordChain {
 public:
  explicit WordChain(const SyntheticTextOptions& options) {
    Random letters(options.seed, "text/words"), chain(options.seed, "text/next");
    const auto count = static_cast<uint32_t>(options.words);
    words_ = InventWords(letters, count);
    for (uint32_t word = 0; word < count; ++word) {
      auto& next = next_.emplace_back();
      for (size_t rank = 0; rank < kNextWords;) {
        const uint32_t drawn = chain.NextBelow(count);
        if (std::find(next.begin(), next.begin() + rank, drawn) == next.begin() + rank) next[rank++] = drawn;
      }
    }
  }

  // Appends the word after `word` and its end to `text`. Returns -log of their probability.
  double Draw(Random& random, uint32_t& word, std::string& text) const {
    uint32_t weight = kWeights / 2, rest = random.NextBelow(kWeights);
    size_t rank = 0;
    for (; rank + 1 < kNextWords && rest >= weight; ++rank) {
      rest -= weight;
      if (rank + 2 < kNextWords) weight /= 2;
    }
    word = next_[word][rank];
    const bool ends = random.NextBelow(kSentenceEnd) == 0;
    absl::StrAppend(&text, words_[word], ends ? ".\n" : " ");
    const double end = ends ? 1.0 / kSentenceEnd : 1 - 1.0 / kSentenceEnd;
    return -std::log(static_cast<double>(weight) / kWeights) - std::log(end);
  }

 private:
  std::vector<std::string> words_;
  std::vector<std::array<uint32_t, kNextWords>> next_;  // [word]
};

// Writes `tokens` characters. Returns their perplexity under `chain`.
absl::StatusOr<double> WriteSet(const WordChain& chain, const std::string& directory, const char* set,
                                const SyntheticTextOptions& options, int64_t tokens) {
  Random random(options.seed, absl::StrCat("text/", set));
  const auto count = static_cast<size_t>(tokens);
  uint32_t word = random.NextBelow(static_cast<uint32_t>(options.words));
  std::string text, bytes;
  double crossentropy = 0;
  while (text.size() < count) crossentropy += chain.Draw(random, word, text);
  const double perplexity = std::exp(crossentropy / static_cast<double>(text.size()));
  text.resize(count);
  bytes.reserve(2 * count);
  for (const char character : text) {
    bytes += static_cast<char>(kCharacters.find(character));
    bytes += '\0';
  }
  CAIRN_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", set, ".bin"), bytes));
  return perplexity;
}

absl::Status CheckOptions(const SyntheticTextOptions& options) {
  constexpr int64_t kMaxTokens = 1'000'000'000, kMinWords = 16, kMaxWords = 20'000;
  for (const int64_t tokens : {options.train_tokens, options.test_tokens}) {
    if (tokens >= 1 && tokens <= kMaxTokens) continue;
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", tokens, " tokens; 1 to ", kMaxTokens));
  }
  if (options.words >= kMinWords && options.words <= kMaxWords) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot make ", options.words, " words; ", kMinWords, " to ", kMaxWords));
}

}  // namespace

absl::StatusOr<double> WriteSyntheticText(const std::string& directory, const SyntheticTextOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckOptions(options));
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  const WordChain chain(options);
  CAIRN_RETURN_IF_ERROR(WriteSet(chain, directory, "train", options, options.train_tokens).status());
  CAIRN_ASSIGN_OR_RETURN(const double perplexity,
                         WriteSet(chain, directory, "test", options, options.test_tokens));
  TokensJson tokens;
  for (const char character : kCharacters) tokens.vocabulary.emplace_back(1, character);
  CAIRN_RETURN_IF_ERROR(WriteTokensJson(directory, tokens));
  return perplexity;
}

}  // namespace cairn::data

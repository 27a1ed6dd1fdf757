// The tokens of a training set, from which Keras' adapt() makes the vocabulary of a lookup layer. One thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace cairn::worker {

class TokenCounts {
 public:
  struct Count {
    int64_t key = 0;        // the token's
    int64_t tokens = 0;     // how often it occurs
    int64_t documents = 0;  // examples that have it
    int64_t last = -1;      // the last of these examples
  };

  // `keys`: those of the tokens of an example.
  void Add(absl::Span<const int64_t> keys) {
    for (const int64_t key : keys) {
      Count& count = counts_.try_emplace(key, Count{.key = key}).first->second;
      ++count.tokens;
      count.documents += std::exchange(count.last, documents_) != documents_ ? 1 : 0;
    }
    ++documents_;
  }

  // The tokens in Keras' order: by falling frequency, and among equally frequent ones by falling `token_of(key)`.
  // Leaves out those for which `is_special(token)`. At most `limit` of them.
  template <typename TokenOf, typename IsSpecial>
  std::vector<Count> MostFrequent(std::optional<size_t> limit, TokenOf token_of, IsSpecial is_special) const {
    std::vector<Count> sorted;
    for (const auto& [key, count] : counts_) {
      if (!is_special(token_of(key))) sorted.push_back(count);
    }
    std::sort(sorted.begin(), sorted.end(), [&](const Count& a, const Count& b) {
      return a.tokens != b.tokens ? a.tokens > b.tokens : token_of(a.key) > token_of(b.key);
    });
    if (limit && *limit < sorted.size()) sorted.resize(*limit);
    return sorted;
  }

  // The inverse document frequency of a token, as Keras': log(1 + documents / (1 + documents that have it)).
  float InverseDocumentFrequency(const Count& count) const {
    return static_cast<float>(
        std::log(1 + static_cast<double>(documents_) / (1 + static_cast<double>(count.documents))));
  }

 private:
  absl::flat_hash_map<int64_t, Count> counts_;
  int64_t documents_ = 0;
};

}  // namespace cairn::worker

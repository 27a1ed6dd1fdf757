#include "data/text/invented_words.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

namespace cairn::data {
namespace {

std::string InventWord(Random& random) {
  constexpr absl::string_view kConsonants = "bcdfghjklmnpqrstvwxyz", kVowels = "aeiou";
  std::string word;
  for (uint32_t syllable = 0, count = 1 + random.NextBelow(4); syllable < count; ++syllable) {
    word += kConsonants[random.NextBelow(kConsonants.size())];
    word += kVowels[random.NextBelow(kVowels.size())];
  }
  return word;
}

}  // namespace

std::vector<std::string> InventWords(Random& random, size_t count) {
  std::vector<std::string> words;
  absl::flat_hash_set<std::string> seen;
  while (words.size() < count) {
    std::string word = InventWord(random);
    if (seen.insert(word).second) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace cairn::data

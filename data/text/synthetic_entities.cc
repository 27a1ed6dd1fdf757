#include "data/text/synthetic_entities.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/files.h"
#include "common/core/random.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "data/array/npy.h"
#include "data/file/output_directory.h"
#include "data/text/invented_words.h"
#include "data/text/number_range.h"
#include "data/tokens_json.h"

namespace cairn::data {
namespace {

constexpr NumberRange kSentences = {"write", "sentences", 1, 10'000'000},
                      kSentenceWords = {"make", "words", 100, 20'000};
constexpr size_t kShortestSentence = 8;  // words of a sentence
constexpr int32_t kUnknown = 1, kFirstKnown = 2;
constexpr std::array<const char*, 5> kTags = {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"};
// Tags, of the first of several names; those of the others are one larger.
constexpr int32_t kOther = 0, kPerson = 1, kPlace = 3;
constexpr std::array<int32_t, 3> kAlone = {kOther, kPerson, kPlace};  // of a name that stands alone

// The words, by what they stand for: indices from `first` on.
struct WordClass {
  uint32_t first = 0, count = 0;
};

struct Grammar {
  Grammar(uint32_t words, uint64_t seed)
      : names{24, words / 2}, ordinary{24 + words / 2, words - 24 - words / 2} {
    Random random(seed, "entities/tendencies");
    for (uint32_t name = 0; name < names.count; ++name)
      tendencies.push_back(kAlone[random.NextBelow(kAlone.size())]);
  }
  WordClass titles{0, 6}, speech{6, 6}, prepositions{12, 6}, places{18, 6}, names, ordinary;
  std::vector<int32_t> tendencies;  // [name] the most probable tag of the name if it stands alone
};

struct Sentence {
  std::vector<uint32_t> words;
  std::vector<int32_t> tags;  // [word]
  int64_t improbable = 0;     // tags of names that stand alone which are not their most probable ones
};

class SentenceWriter {
 public:
  SentenceWriter(const Grammar& grammar, Random& random) : grammar_(grammar), random_(random) {}

  Sentence Draw() {
    sentence_ = {};
    const size_t length = kShortestSentence + random_.NextBelow(kEntityLength - kShortestSentence + 1);
    while (sentence_.words.size() < length) {
      const Sentence before = sentence_;
      AddPart();
      // A cut could separate a name from the word that tells what it is.
      if (sentence_.words.size() > kEntityLength) return before;
    }
    return sentence_;
  }

 private:
  // Every part begins and ends with a word that is no name, so that names of different parts do not touch.
  void AddPart() {
    const uint32_t kind = random_.NextBelow(10);
    if (kind < 3) return AddNames(kPerson, 2, grammar_.titles, grammar_.speech);
    if (kind < 6) return AddNames(kPlace, 3, grammar_.prepositions, grammar_.places);
    AddOrdinary(1);
    if (kind < 8) AddNameAlone();
    AddOrdinary(1);
  }

  // Up to `most` names behind a word of `before`, or before one of `behind`.
  void AddNames(int32_t tag, uint32_t most, const WordClass& before, const WordClass& behind) {
    const bool first = random_.NextBelow(2) == 0;
    const uint32_t between = random_.NextBelow(3);
    if (first) Add(before, kOther);
    AddOrdinary(first ? between : 1);
    for (uint32_t name = 0, count = 1 + random_.NextBelow(most); name < count; ++name)
      Add(grammar_.names, name == 0 ? tag : tag + 1);
    AddOrdinary(first ? 1 : between);
    if (!first) Add(behind, kOther);
  }

  void AddNameAlone() {
    Add(grammar_.names, kOther);
    const int32_t tendency = grammar_.tendencies[sentence_.words.back() - grammar_.names.first];
    const bool probable = random_.NextBelow(5) > 0;
    sentence_.tags.back() = probable ? tendency : kAlone[random_.NextBelow(kAlone.size())];
    sentence_.improbable += sentence_.tags.back() == tendency ? 0 : 1;
  }

  void AddOrdinary(uint32_t count) {
    for (; count > 0; --count) Add(grammar_.ordinary, kOther);
  }

  // Words of a class have frequencies by Zipf's law.
  void Add(const WordClass& from, int32_t tag) {
    const double rank = std::exp(random_.NextUniform() * std::log(static_cast<double>(from.count) + 1));
    sentence_.words.push_back(from.first + std::min(static_cast<uint32_t>(rank), from.count) - 1);
    sentence_.tags.push_back(tag);
  }

  const Grammar& grammar_;
  Random& random_;
  Sentence sentence_;
};

std::vector<Sentence> DrawSet(const Grammar& grammar, const char* set, int64_t rows, uint64_t seed) {
  Random random(seed, absl::StrCat("entities/", set));
  SentenceWriter writer(grammar, random);
  std::vector<Sentence> sentences;
  for (int64_t row = 0; row < rows; ++row) sentences.push_back(writer.Draw());
  return sentences;
}

// How often the words have each tag.
using TagCounts = std::vector<std::array<int64_t, kTags.size()>>;  // [word]

TagCounts CountTags(const std::vector<Sentence>& sentences, size_t words) {
  TagCounts counts(words);
  for (const Sentence& sentence : sentences) {
    for (size_t i = 0; i < sentence.words.size(); ++i)
      ++counts[sentence.words[i]][static_cast<size_t>(sentence.tags[i])];
  }
  return counts;
}

bool IsKnown(const TagCounts& counts, uint32_t word) {
  return std::any_of(counts[word].begin(), counts[word].end(), [](int64_t count) { return count > 0; });
}

// The accuracies of the tags that are most probable in the grammar, and of those that each word has most often in
// `counts`.
EntityAccuracies AccuraciesOf(const std::vector<Sentence>& sentences, const TagCounts& counts) {
  int64_t improbable = 0, by_word = 0, all = 0;
  for (const Sentence& sentence : sentences) {
    improbable += sentence.improbable;
    for (size_t i = 0; i < sentence.words.size(); ++i, ++all) {
      const auto& tags = counts[sentence.words[i]];
      by_word += std::max_element(tags.begin(), tags.end()) - tags.begin() == sentence.tags[i] ? 1 : 0;
    }
  }
  const auto words = static_cast<double>(all);
  return {.best = static_cast<double>(all - improbable) / words,
          .by_word = static_cast<double>(by_word) / words};
}

absl::Status WriteSet(const std::string& directory, const char* set, const std::vector<Sentence>& sentences,
                      const TagCounts& counts) {
  const Shape shape = {static_cast<int64_t>(sentences.size()), kEntityLength};
  std::vector<int32_t> ids(static_cast<size_t>(shape.num_elements())), tags(ids.size());
  for (size_t row = 0; row < sentences.size(); ++row) {
    const Sentence& sentence = sentences[row];
    for (size_t i = 0; i < sentence.words.size(); ++i) {
      const uint32_t word = sentence.words[i];
      ids[row * kEntityLength + i] =
          IsKnown(counts, word) ? kFirstKnown + static_cast<int32_t>(word) : kUnknown;
      tags[row * kEntityLength + i] = sentence.tags[i];
    }
  }
  CAIRN_RETURN_IF_ERROR(WriteNpy(absl::StrCat(directory, "/x_", set, ".npy"), shape, ids));
  return WriteNpy(absl::StrCat(directory, "/y_", set, ".npy"), shape, tags);
}

absl::Status WriteTexts(const std::string& directory, const std::vector<std::string>& words) {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]"};
  vocabulary.insert(vocabulary.end(), words.begin(), words.end());
  const nlohmann::ordered_json texts = {{"vocabulary", vocabulary}, {"separator", " "}, {"tags", kTags}};
  return WriteFileAtomically(absl::StrCat(directory, "/", kTokensFile), texts.dump() + "\n");
}

}  // namespace

absl::StatusOr<EntityAccuracies> WriteSyntheticEntities(const std::string& directory,
                                                        const SyntheticEntitiesOptions& options) {
  for (const int64_t rows : {options.train_rows, options.test_rows})
    CAIRN_RETURN_IF_ERROR(kSentences.Check(rows));
  CAIRN_RETURN_IF_ERROR(kSentenceWords.Check(options.words));
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  Random letters(options.seed, "entities/words");
  const std::vector<std::string> words = InventWords(letters, static_cast<size_t>(options.words));
  const Grammar grammar(static_cast<uint32_t>(options.words), options.seed);
  const auto train = DrawSet(grammar, "train", options.train_rows, options.seed);
  const auto test = DrawSet(grammar, "test", options.test_rows, options.seed);
  const TagCounts counts = CountTags(train, words.size());
  CAIRN_RETURN_IF_ERROR(WriteSet(directory, "train", train, counts));
  CAIRN_RETURN_IF_ERROR(WriteSet(directory, "test", test, counts));
  CAIRN_RETURN_IF_ERROR(WriteTexts(directory, words));
  return AccuraciesOf(test, counts);
}

}  // namespace cairn::data

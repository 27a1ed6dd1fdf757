#include "data/text/synthetic_translation.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

constexpr NumberRange kPairs = {"write", "pairs of sentences", 1, 10'000'000};
constexpr uint32_t kNouns = 60, kAdjectives = 30, kVerbs = 28, kPrepositions = 6, kArticles = 2;
constexpr uint32_t kNumbers = 2, kGenders = 3;
constexpr char kSourceName[] = "encoder_inputs", kTargetName[] = "decoder_inputs";
constexpr int32_t kStart = 1, kEnd = 2, kFirstToken = 3;

// The ids of the forms of a class of words: those of word 0, then those of word 1, and so on.
struct Forms {
  int32_t first = 0;
  uint32_t words = 0, forms = 1;
  constexpr int32_t end() const { return first + static_cast<int32_t>(words * forms); }
  int32_t Id(uint32_t word, uint32_t form = 0) const {
    return first + static_cast<int32_t>(word * forms + form);
  }
};

// A language's words. Forms are by number, or by gender and number.
struct Lexicon {
  constexpr Lexicon(uint32_t adjective_forms, uint32_t article_forms)
      : adjectives{nouns.end(), kAdjectives, adjective_forms},
        verbs{adjectives.end(), kVerbs, kNumbers},
        prepositions{verbs.end(), kPrepositions},
        articles{prepositions.end(), kArticles, article_forms} {}
  Forms nouns{kFirstToken, kNouns, kNumbers}, adjectives, verbs, prepositions, articles;
  constexpr int32_t size() const { return articles.end(); }
};

constexpr Lexicon kSource(/*adjective_forms=*/1, /*article_forms=*/1),
    kTarget(/*adjective_forms=*/kGenders* kNumbers, /*article_forms=*/kGenders* kNumbers);
static_assert(kSource.size() == kSourceTokens && kTarget.size() == kTargetTokens);

struct NounPhrase {
  uint32_t article = 0, noun = 0, number = 0;
  std::vector<uint32_t> adjectives{};
};

struct Pair {
  std::vector<int32_t> source, target;
};

// [id] of `count` tokens.
std::vector<std::string> Texts(const char* name, int count, uint64_t seed) {
  Random letters(seed, absl::StrCat("translation/", name));
  std::vector<std::string> texts = {"[PAD]", "[START]", "[END]"};
  for (std::string& word : InventWords(letters, static_cast<size_t>(count - kFirstToken)))
    texts.push_back(std::move(word));
  return texts;
}

class PairWriter {
 public:
  explicit PairWriter(uint64_t seed) : source_texts_(Texts(kSourceName, kSourceTokens, seed)) {
    Random random(seed, "translation/genders");
    for (uint32_t noun = 0; noun < kNouns; ++noun) genders_.push_back(random.NextBelow(kGenders));
  }

  Pair Draw(Random& random) const {
    const NounPhrase subject = DrawPhrase(random), object = DrawPhrase(random);
    const uint32_t verb = random.NextBelow(kVerbs);
    Pair pair;
    AddSource(subject, pair.source);
    pair.source.push_back(kSource.verbs.Id(verb, subject.number));
    AddSource(object, pair.source);
    AddTarget(subject, pair.target);
    if (random.NextBelow(2) == 0) {
      const uint32_t preposition = random.NextBelow(kPrepositions);
      const NounPhrase place = DrawPhrase(random);
      pair.source.push_back(kSource.prepositions.Id(preposition));
      AddSource(place, pair.source);
      AddTarget(place, pair.target);
      pair.target.push_back(kTarget.prepositions.Id(preposition));
    }
    AddTarget(object, pair.target);
    pair.target.push_back(kTarget.verbs.Id(verb, subject.number));
    return pair;
  }

  const std::vector<std::string>& source_texts() const { return source_texts_; }  // [id]

 private:
  static NounPhrase DrawPhrase(Random& random) {
    NounPhrase phrase = {.article = random.NextBelow(kArticles),
                         .noun = random.NextBelow(kNouns),
                         .number = random.NextBelow(kNumbers)};
    for (uint32_t left = random.NextBelow(3); left > 0; --left)
      phrase.adjectives.push_back(random.NextBelow(kAdjectives));
    return phrase;
  }

  static void AddSource(const NounPhrase& phrase, std::vector<int32_t>& words) {
    words.push_back(kSource.articles.Id(phrase.article));
    for (const uint32_t adjective : phrase.adjectives) words.push_back(kSource.adjectives.Id(adjective));
    words.push_back(kSource.nouns.Id(phrase.noun, phrase.number));
  }

  void AddTarget(const NounPhrase& phrase, std::vector<int32_t>& words) const {
    const uint32_t form = genders_[phrase.noun] * kNumbers + phrase.number;
    words.push_back(kTarget.nouns.Id(phrase.noun, phrase.number));
    for (auto adjective = phrase.adjectives.rbegin(); adjective != phrase.adjectives.rend(); ++adjective)
      words.push_back(kTarget.adjectives.Id(*adjective, form));
    words.push_back(kTarget.articles.Id(phrase.article, form));
  }

  const std::vector<std::string> source_texts_;
  std::vector<uint32_t> genders_;  // [noun]
};

absl::Status WriteSet(const PairWriter& writer, const std::string& directory, const std::string& set,
                      int64_t rows, uint64_t seed) {
  Random random(seed, absl::StrCat("translation/", set));
  const Shape shape = {rows, kTranslationLength};
  const auto elements = static_cast<size_t>(shape.num_elements());
  std::vector<int32_t> source(elements), before(elements), target(elements);
  std::string sentences;
  for (size_t row = 0; row < elements; row += kTranslationLength) {
    const Pair pair = writer.Draw(random);
    std::copy(pair.source.begin(), pair.source.end(), source.begin() + static_cast<std::ptrdiff_t>(row));
    for (size_t i = 0; i < pair.target.size(); ++i) before[row + i + 1] = target[row + i] = pair.target[i];
    for (size_t i = 0; i < pair.source.size(); ++i)
      absl::StrAppend(&sentences, i == 0 ? "" : " ",
                      writer.source_texts()[static_cast<size_t>(pair.source[i])]);
    sentences += '\n';
    before[row] = kStart;
    target[row + pair.target.size()] = kEnd;
  }
  const std::string inputs = absl::StrCat(directory, "/x_", set, "_");
  CAIRN_RETURN_IF_ERROR(WriteNpy(absl::StrCat(inputs, kSourceName, ".npy"), shape, source));
  CAIRN_RETURN_IF_ERROR(WriteNpy(absl::StrCat(inputs, kTargetName, ".npy"), shape, before));
  CAIRN_RETURN_IF_ERROR(WriteNpy(absl::StrCat(directory, "/y_", set, ".npy"), shape, target));
  return WriteFileAtomically(absl::StrCat(directory, "/sentences_", set, ".txt"), sentences);
}

absl::Status WriteTexts(const std::string& directory, const char* name,
                        const std::vector<std::string>& texts) {
  const nlohmann::json vocabulary = {{"vocabulary", texts}, {"separator", " "}};
  return WriteFileAtomically(absl::StrCat(directory, "/", name, ".json"), vocabulary.dump() + "\n");
}

}  // namespace

absl::Status WriteSyntheticTranslation(const std::string& directory,
                                       const SyntheticTranslationOptions& options) {
  for (const int64_t rows : {options.train_rows, options.test_rows})
    CAIRN_RETURN_IF_ERROR(kPairs.Check(rows));
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  const PairWriter writer(options.seed);
  CAIRN_RETURN_IF_ERROR(WriteSet(writer, directory, "train", options.train_rows, options.seed));
  CAIRN_RETURN_IF_ERROR(WriteSet(writer, directory, "test", options.test_rows, options.seed));
  CAIRN_RETURN_IF_ERROR(WriteTexts(directory, kSourceName, writer.source_texts()));
  return WriteTexts(directory, kTargetName, Texts(kTargetName, kTargetTokens, options.seed));
}

}  // namespace cairn::data

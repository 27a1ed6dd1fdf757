// The generated sets of texts: their form, and that what they promise can be learned from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/text/synthetic_entities.h"
#include "data/text/synthetic_reviews.h"
#include "data/text/synthetic_translation.h"
#include "data/tokens_json.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The rows of an int32 array with `width` columns.
std::vector<std::vector<int32_t>> ReadRows(const std::string& path, size_t width) {
  const std::string bytes = ReadText(path);
  EXPECT_THAT(bytes.substr(0, 128), HasSubstr(absl::StrCat("'<i4', 'fortran_order': False, 'shape': (")));
  const size_t begin = 10 + static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  std::vector<std::vector<int32_t>> rows((bytes.size() - begin) / (4 * width), std::vector<int32_t>(width));
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(rows[i].data(), bytes.data() + begin + i * 4 * width, 4 * width);
  return rows;
}

std::vector<json> ReadLines(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(ReadText(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(SyntheticReviews, LabelsFollowFromTheWords) {
  const TemporaryDirectory dir;
  const auto best =
      WriteSyntheticReviews(dir.path(), {.train_rows = 20'000, .test_rows = 4'000, .words = 100});
  ASSERT_TRUE(best.ok()) << best.status();
  // Naive Bayes: the sum over the words of the logarithm of how much more often they occur with label 1.
  std::map<std::string, std::array<double, 2>> counts;
  const auto words_of = [](const json& line) {
    std::string text = line["text"];
    EXPECT_EQ(text.back(), '.');
    text.pop_back();
    text[0] = static_cast<char>(std::tolower(text[0]));
    return std::vector<std::string>(absl::StrSplit(text, ' '));
  };
  std::array<double, 2> all = {};
  for (const json& line : ReadLines(dir / "train.jsonl")) {
    for (const std::string& word : words_of(line)) {
      ++counts.try_emplace(word, std::array<double, 2>{1, 1}).first->second[line["label"].get<size_t>()];
      ++all[line["label"].get<size_t>()];
    }
  }
  const auto test = ReadLines(dir / "test.jsonl");
  ASSERT_EQ(test.size(), 4'000u);
  double right = 0;
  for (const json& line : test) {
    double score = 0;
    for (const std::string& word : words_of(line)) {
      const auto& [zeros, ones] = counts[word];
      score += std::log(ones / all[1]) - std::log(zeros / all[0]);
    }
    right += (score > 0) == (line["label"] == 1) ? 1 : 0;
  }
  EXPECT_GT(*best, 0.7);
  EXPECT_NEAR(right / 4'000, *best, 0.05);
}

TEST(SyntheticEntities, TagsAreBioAndPaddingHasNone) {
  const TemporaryDirectory dir;
  const auto accuracies = WriteSyntheticEntities(dir.path(), {.train_rows = 400, .test_rows = 100});
  ASSERT_TRUE(accuracies.ok()) << accuracies.status();
  EXPECT_EQ(json::parse(ReadText(dir / "tokens.json"))["vocabulary"].size(), 1'002u);
  bool unknown = false;
  std::map<int32_t, std::set<int32_t>> tags_of;
  for (const std::string set : {"train", "test"}) {
    const auto words = ReadRows(dir / absl::StrCat("x_", set, ".npy"), kEntityLength);
    const auto tags = ReadRows(dir / absl::StrCat("y_", set, ".npy"), kEntityLength);
    ASSERT_EQ(words.size(), set == "train" ? 400u : 100u);
    for (size_t row = 0; row < words.size(); ++row) {
      int32_t before = 0;
      for (size_t i = 0; i < words[row].size(); ++i) {
        const int32_t word = words[row][i], tag = tags[row][i];
        if (word == 0) {
          EXPECT_EQ(tag, 0);
          EXPECT_TRUE(i + 1 == words[row].size() || words[row][i + 1] == 0) << "padding is at the end";
        }
        EXPECT_TRUE((tag != 2 && tag != 4) || before == tag || before == tag - 1) << row;
        EXPECT_TRUE((tag != 1 && tag != 3) || before == 0) << "names do not touch";
        unknown = unknown || word == 1;
        EXPECT_FALSE(word == 1 && set == "train");
        tags_of[word].insert(tag);
        before = tag;
      }
    }
  }
  EXPECT_TRUE(unknown);
  EXPECT_TRUE(std::any_of(tags_of.begin(), tags_of.end(), [](const auto& word) {
    return word.second.size() == 5;
  })) << "a name can be anything";
  EXPECT_GT(accuracies->best, 0.97);
  EXPECT_LT(accuracies->best, 1);
  EXPECT_LT(accuracies->by_word, 0.9);
}

TEST(SyntheticTranslation, TargetsAreShiftedAndDependOnTheSource) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticTranslation(dir.path(), {.train_rows = 500, .test_rows = 50}).ok());
  std::map<int32_t, std::set<int32_t>>
      nouns;  // first target words by the second source words that end a phrase
  for (const std::string set : {"train", "test"}) {
    const auto source = ReadRows(dir / absl::StrCat("x_", set, "_encoder_inputs.npy"), kTranslationLength);
    const auto before = ReadRows(dir / absl::StrCat("x_", set, "_decoder_inputs.npy"), kTranslationLength);
    const auto target = ReadRows(dir / absl::StrCat("y_", set, ".npy"), kTranslationLength);
    ASSERT_EQ(source.size(), set == "train" ? 500u : 50u);
    const std::vector<std::string> sentences =
        absl::StrSplit(ReadText(dir / absl::StrCat("sentences_", set, ".txt")), '\n');
    ASSERT_EQ(sentences.size(), source.size() + 1) << "each line ends";
    const TokensJson texts = ReadVocabulary(dir / "encoder_inputs.json").value();
    for (size_t row = 0; row < source.size(); ++row) {
      const std::vector<int64_t> words = TokensOf(sentences[row], texts).value();
      EXPECT_TRUE(std::equal(words.begin(), words.end(), source[row].begin())) << sentences[row];
      EXPECT_EQ(source[row][words.size()], 0);
      EXPECT_EQ(before[row][0], 1);
      size_t length = 0;
      while (target[row][length] > 2) ++length;
      EXPECT_EQ(target[row][length], 2);
      for (size_t i = 0; i < length; ++i) EXPECT_EQ(before[row][i + 1], target[row][i]);
      for (size_t i = length + 1; i < target[row].size(); ++i) EXPECT_EQ(before[row][i] + target[row][i], 0);
      EXPECT_TRUE(source[row][length - 1] > 2 && source[row][length] == 0) << "as many words as the target";
      // Ids from 3 to 122 are nouns in both languages.
      for (size_t i = 1; i < length; ++i) {
        if (source[row][i] > 122) continue;
        nouns[source[row][i]].insert(target[row][0]);
        break;
      }
    }
  }
  EXPECT_GT(nouns.size(), 100u);
  for (const auto& [noun, first] : nouns) EXPECT_EQ(first.size(), 1u) << "the subject comes first: " << noun;
}

TEST(SyntheticTexts, ASeedGivesTheSameFiles) {
  const TemporaryDirectory a, b, c;
  for (const auto& [dir, seed] : {std::pair{&a, 1}, std::pair{&b, 1}, std::pair{&c, 2}}) {
    const auto number = static_cast<uint64_t>(seed);
    ASSERT_TRUE(WriteSyntheticReviews(dir->path(), {.train_rows = 9, .test_rows = 9, .seed = number}).ok());
    ASSERT_TRUE(WriteSyntheticEntities(dir->path(), {.train_rows = 9, .test_rows = 9, .seed = number}).ok());
  }
  for (const char* file : {"test.jsonl", "x_test.npy", "tokens.json"}) {
    EXPECT_EQ(ReadText(a / file), ReadText(b / file));
    EXPECT_NE(ReadText(a / file), ReadText(c / file));
  }
}

TEST(SyntheticTexts, ImpossibleNumbersAreRefused) {
  const TemporaryDirectory dir;
  EXPECT_THAT(std::string(WriteSyntheticReviews(dir.path(), {.train_rows = 0}).status().message()),
              HasSubstr("cannot write 0 reviews"));
  EXPECT_THAT(std::string(WriteSyntheticEntities(dir.path(), {.words = 99}).status().message()),
              HasSubstr("cannot make 99 words; 100 to 20000"));
  EXPECT_THAT(std::string(WriteSyntheticTranslation(dir.path(), {.test_rows = -1}).message()),
              HasSubstr("cannot write -1 pairs of sentences"));
}

}  // namespace
}  // namespace cairn::data

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/dataset.h"
#include "data/tokens/synthetic_text.h"
#include "data/tokens/token_windows.h"
#include "data/tokens_json.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/refusals.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Little-endian integers of `width` bytes.
std::string Tokens(const std::vector<uint32_t>& ids, int width = 2) {
  std::string bytes;
  for (const uint32_t id : ids) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(id >> (8 * i)));
  }
  return bytes;
}

std::string NpyOf(const std::string& dtype, size_t count, const std::string& bytes) {
  std::string header =
      absl::StrCat("{'descr': '", dtype, "', 'fortran_order': False, 'shape': (", count, ",), }");
  header.resize(117, ' ');
  header.push_back('\n');
  return std::string("\x93NUMPY\x01\0", 8) + Tokens({static_cast<uint32_t>(header.size())}) + header + bytes;
}

DataOptions OptionsFor(const std::string& path, int64_t length) {
  return {.path = path,
          .input_names = {"ids"},
          .input_shapes = {{length}},
          .input_types = {DType::kInt32},
          .table_rows = {300}};
}

TEST(LoadTokens, WindowsStepByTheirLengthAndTheTargetIsTheNextToken) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.bin", Tokens({10, 11, 12, 13, 14, 15, 299, 17}));
  WriteText(dir / "val.bin", Tokens({1, 2, 3, 4}));
  const auto data = LoadTrainingData(OptionsFor(dir.path(), 3));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 2) << "the last token is in no window";
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(10, 11, 12));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(11, 12, 13));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(13, 14, 15));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(14, 15, 299));
  EXPECT_EQ(data->train->target_info().position_classes, 300);
  EXPECT_EQ(data->train->target_info().shape, Shape({3}));
  EXPECT_TRUE(data->train->Target(0).empty()) << "targets stay in the file";
  ASSERT_EQ(data->validation->size(), 1);
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(2, 3, 4));
  ASSERT_TRUE(data->tokens.has_value());
  EXPECT_THAT(data->tokens->vocabulary, IsEmpty());
}

TEST(LoadTokens, TheSideFileGivesTheTypeAndTheVocabulary) {
  const TemporaryDirectory dir;
  WriteText(dir / "tokens.json", R"({"dtype": "uint32", "vocabulary": ["a", "b"]})");
  WriteText(dir / "train.bin", Tokens({1, 0, 1}, 4));
  const auto data = LoadTrainingData(OptionsFor(dir / "train.bin", 2));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(1, 0));
  EXPECT_EQ(data->validation, nullptr);
  EXPECT_THAT(data->tokens->vocabulary, ElementsAre("a", "b"));
}

TEST(LoadTokens, NpyFilesHaveTheirOwnType) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.npy", NpyOf("<u4", 4, Tokens({5, 6, 7, 8}, 4)));
  WriteText(dir / "test.npy", NpyOf("|u1", 3, Bytes({1, 2, 3})));
  const auto data = LoadTrainingData(OptionsFor(dir.path(), 2));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(5, 6));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(2, 3));
}

TEST(LoadTokens, NoWindowReachesIntoTheNextPiece) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-0.bin", Tokens({1, 2, 3, 4}));
  WriteText(dir / "train-1.bin", Tokens({5, 6, 7}));
  const auto data = LoadTrainingData(OptionsFor(dir.path(), 2));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(5, 6));
  EXPECT_EQ(data->train->TargetName(1), dir / "train-1.bin" + ": example 0");
}

TEST(LoadTokens, AModelOfImagesReadsTheSameNameAsCifar) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.bin", std::string(3074, '\1'));
  DataOptions options = OptionsFor(dir.path(), 2);
  options.input_types = {DType::kFloat32};
  options.input_shapes = {{32, 32, 3}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({32, 32, 3}));
}

TEST(LoadTokens, FaultsNameTheFileAndTheToken) {
  const TemporaryDirectory dir;
  DataOptions options = OptionsFor(dir.path(), 2);
  WriteText(dir / "train.bin", Tokens({1, 2, 300, 4}));
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("train.bin: token 2 is 300, and the table of the model has ids from 0 to 299"));
  WriteText(dir / "train.bin", Tokens({1, 2, 3}) + "x");
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("train.bin: has 7 bytes, not a multiple of the 2 of uint16 tokens"));
  WriteText(dir / "train.bin", Tokens({1, 2}));
  EXPECT_THAT(LoadRefusal(options), HasSubstr("train.bin: has 0 windows of 2 tokens and their next one"));
  WriteText(dir / "train.bin", Tokens({1, 2, 3}));
  options.label_threshold = 1;
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("train.bin: --label_threshold: needs labels, but the targets are tokens"));
  options.label_threshold.reset();
  options.class_weights = {{1, 2}};
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("train.bin: targets are tokens, which cannot have class weights"));
  options.path = dir / "ids.npy";
  WriteText(dir / "ids.npy", NpyOf("<i2", 3, Tokens({1, 0xFFFF, 2})));
  EXPECT_THAT(LoadRefusal(options), HasSubstr("ids.npy: token 1 is -1, not an id from 0 to 16777216"));
  WriteText(dir / "ids.npy", NpyOf("<f4", 3, std::string(12, '\0')));
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("ids.npy: is float32 [3], but ids of tokens are integers along one axis"));
}

TEST(TokensJson, FaultsNameTheField) {
  const TemporaryDirectory dir;
  const std::map<std::string, std::string> faults = {
      {R"({"dtype": "int8"})", "dtype: expected \"uint16\" or \"uint32\", got \"int8\""},
      {R"({"vocabulary": ["a", "a"]})", "vocabulary: \"a\" occurs twice"},
      {R"({"vocabulary": ["a", ""]})", "vocabulary: entry 1 is \"\""},
      {R"({"separator": ","})", "separator: expected \" \", got \",\""}};
  for (const auto& [text, fault] : faults) {
    WriteText(dir / "tokens.json", text);
    EXPECT_THAT(std::string(ReadTokensJson(dir.path()).status().message()),
                HasSubstr("tokens.json: " + fault));
  }
  for (const TokensJson& tokens : {TokensJson{ElementType::kUint32, {"\n", "\xC3\xA9"}},
                                   TokensJson{.vocabulary = {"", "a"}, .words = true}}) {
    ASSERT_TRUE(WriteTokensJson(dir.path(), tokens).ok());
    EXPECT_EQ(ReadTokensJson(dir.path()).value(), tokens);
  }
}

TEST(TokensJson, ATextIsDividedIntoTheLongestTokens) {
  const TokensJson vocabulary = {.vocabulary = {"a", "ab", "abc", "d"}};
  EXPECT_THAT(TokensOf("abcdaba", vocabulary).value(), ElementsAre(2, 3, 1, 0));
  EXPECT_THAT(std::string(TokensOf("abx", vocabulary).status().message()),
              HasSubstr("no token of the vocabulary begins at byte 2, 'x'"));
}

TEST(Vocabulary, LinesAreWords) {
  const TemporaryDirectory dir;
  const std::string file = dir / "words.txt";
  WriteText(file, "\xEF\xBB\xBF\n[UNK]\r\n[START]\nel\nperro\n");
  const auto tokens = ReadVocabulary(file);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(tokens->vocabulary, ElementsAre("", "[UNK]", "[START]", "el", "perro"));
  EXPECT_THAT(TokensOf(" perro\tel\r\n", *tokens).value(), ElementsAre(4, 3));
  EXPECT_THAT(TokensOf("el gato", *tokens).value(), ElementsAre(3, 1));
  EXPECT_THAT(TokensOf("", *tokens).value(), ElementsAre());
  EXPECT_EQ(IdOf(*tokens, {"[start]", "[START]"}), 2);
  EXPECT_EQ(IdOf(*tokens, {"[END]"}), std::nullopt);

  const std::map<std::string, std::string> faults = {{"a\nb\na", "line 3: 'a' occurs twice"},
                                                     {"a\n\nb", "line 2: '' is not a word"},
                                                     {"a\nb c", "line 2: 'b c' is not a word"}};
  for (const auto& [text, fault] : faults) {
    WriteText(file, text);
    EXPECT_THAT(std::string(ReadVocabulary(file).status().message()), HasSubstr("words.txt: " + fault));
  }
  EXPECT_THAT(
      std::string(TokensOf("el gato", TokensJson{.vocabulary = {"el"}, .words = true}).status().message()),
      HasSubstr("the word 'gato' is not in the vocabulary"));
}

TEST(SyntheticText, ItsPerplexityIsThatOfAModelThatKnowsTheWordBefore) {
  const TemporaryDirectory dir;
  const auto best =
      WriteSyntheticText(dir.path(), {.train_tokens = 600'000, .test_tokens = 200'000, .words = 16});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(ReadText(dir / "train.bin").size(), 1'200'000u);
  // Frequencies of the training set predict the words of the test set from the word before.
  const std::string vocabulary = "\n .abcdefghijklmnopqrstuvwxyz";
  std::map<std::string, std::map<std::string, double>> counts;
  double crossentropy = 0, characters = 0;
  for (const std::string set : {"train", "test"}) {
    const std::string bytes = ReadText(dir / (set + ".bin"));
    std::string before, word;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      word += vocabulary[static_cast<size_t>(bytes[i])];
      if (word.back() != ' ' && word.back() != '\n') continue;
      auto& next = counts[before.substr(0, before.find_first_of(" ."))];
      if (set == "train") {
        ++next[word];
        ++next[""];
      } else if (!before.empty()) {
        crossentropy -= std::log(std::max(next[word], 0.5) / next[""]);
        characters += static_cast<double>(word.size());
      }
      before = word;
      word.clear();
    }
  }
  EXPECT_NEAR(std::exp(crossentropy / characters), *best, 0.003);
  EXPECT_EQ(ReadTokensJson(dir.path())->vocabulary.size(), 29u);
}

}  // namespace
}  // namespace cairn::data

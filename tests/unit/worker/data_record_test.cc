#include "worker/export/data_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "tests/unit/data/data_files.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Preprocessing kPlain = {.inputs = {{.name = "x", .bytes = false, .scale = 1}}};

std::string Refusal(const DataRecord& record, const std::vector<std::string>& names) {
  return std::string(CheckSameClasses(record, names).message());
}

TEST(DataRecord, IsFoundNextToTheValues) {
  const data::TemporaryDirectory dir;
  const std::string step = dir / "checkpoints/step-00000020";
  std::filesystem::create_directories(step);
  ASSERT_TRUE(WriteFileAtomically(dir / "model.safetensors", "").ok());
  ASSERT_TRUE(WriteDataRecord({dir.path(), {"cat", "dog"}, kPlain}).ok());
  for (const std::string& path : {dir.path(), step, dir / "model.safetensors"}) {
    const auto record = ReadDataRecord(path);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_THAT(record->class_names, ElementsAre("cat", "dog"));
    EXPECT_EQ(record->preprocessing, kPlain);
  }
  ASSERT_TRUE(WriteDataRecord({dir.path(), {}, kPlain}).ok());
  EXPECT_TRUE(ReadDataRecord(dir.path())->class_names.empty()) << "names of other data are removed";
}

TEST(DataRecord, KeepsTheVocabularyOfTokens) {
  const data::TemporaryDirectory dir;
  const DataRecord record = {
      .directory = dir.path(), .preprocessing = kPlain, .tokens = data::TokensJson{.vocabulary = {"a", "b"}}};
  ASSERT_TRUE(WriteDataRecord(record).ok());
  const auto read = ReadDataRecord(dir.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tokens, record.tokens);
  ASSERT_TRUE(WriteDataRecord({.directory = dir.path(), .preprocessing = kPlain}).ok());
  EXPECT_FALSE(ReadDataRecord(dir.path())->tokens.has_value()) << "those of an earlier model are removed";
  DataRecord now = record;
  EXPECT_EQ(CheckSameData(*read, now), absl::OkStatus());
  now.tokens->vocabulary = {"a", "c"};
  EXPECT_THAT(std::string(CheckSameData(*read, now).message()),
              HasSubstr("tokens.json: the vocabulary of the training set differs from token 1 on"));
}

TEST(DataRecord, DamagedFileIsNamed) {
  const data::TemporaryDirectory dir;
  ASSERT_TRUE(WriteFileAtomically(dir / "preprocessing.json", "{").ok());
  EXPECT_THAT(std::string(ReadDataRecord(dir.path()).status().message()),
              HasSubstr(dir / "preprocessing.json"));
}

TEST(DataRecord, FirstClassThatDiffersIsNamed) {
  const DataRecord record{.directory = "run", .class_names = {"cat", "dog"}, .preprocessing = kPlain};
  EXPECT_EQ(CheckSameClasses(record, record.class_names), absl::OkStatus());
  EXPECT_THAT(Refusal(record, std::vector<std::string>{"cat", "eel"}),
              HasSubstr("run/class_names.txt: has 2 classes: 0 'cat', 1 'dog'; "
                        "the training set has 2 classes: 0 'cat', 1 'eel'; "
                        "class 1 is 'dog' there, 'eel' here"));
  EXPECT_THAT(Refusal(record, {"cat"}), HasSubstr("class 1 is 'dog' there, none here"));
  EXPECT_THAT(Refusal(record, {"cat", "dog", "eel"}), HasSubstr("class 2 is none there, 'eel' here"));
}

TEST(DataRecord, ClassNamesDifferFromNumericLabels) {
  EXPECT_THAT(Refusal({.directory = "run", .class_names = {"cat", "dog"}}, {}),
              HasSubstr("but the labels of the training set are numbers: class 0 was 'cat', and is now 0"));
  EXPECT_THAT(Refusal({.directory = "run", .preprocessing = kPlain}, {"cat", "dog"}),
              HasSubstr("run: trained with numeric labels, but the training set has 2 classes"));
  EXPECT_EQ(Refusal({.directory = "run"}, {"cat", "dog"}), "") << "the record is empty";
}

}  // namespace
}  // namespace cairn::worker

#include "data/csv/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/ids/id_map.h"
#include "common/ids/text_ids.h"
#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/examples.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Options of a model of one text, whose first three words are looked up.
DataOptions TextOptions(const std::string& path) {
  const auto vocabulary = MakeTextVocabulary({.layer = "layer 'words' (TextVectorization)",
                                              .first_token = 2,
                                              .first_other = 1,
                                              .others = {.buckets = 1}},
                                             {"good", "bad"}, "");
  return {.path = path,
          .input_names = {"text"},
          .input_shapes = {{3}},
          .input_types = {DType::kInt64},
          .id_maps = {MakeTextIds({.length = 3}, vocabulary)},
          .text_inputs = {true}};
}

TEST(TextsOfCsv, AFieldBecomesTheIdsOfItsWords) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "text,label\n\"Good, \"\"bad\"\" and ugly\",1\n,0\nBAD!,1\n");
  const auto data = LoadTrainingData(TextOptions(dir.path()));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(2, 3, 1));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(ReadIds(*data->train, 2), ElementsAre(3, 0, 0));
}

TEST(JsonLines, AreReadAsCsv) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.jsonl",
            "{\"text\": \"good\\nbad, \\\"good\\\"\", \"label\": \"yes\"}\n\n"
            "{\"label\": \"no\", \"text\": null}\r\n");
  WriteText(dir / "test.jsonl", "{\"text\": \"bad\", \"label\": \"no\"}");
  const auto data = LoadTrainingData(TextOptions(dir.path()));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->class_names, ElementsAre("no", "yes"));
  ASSERT_EQ(data->train->size(), 2);
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(2, 3, 2));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(ReadIds(*data->validation, 0), ElementsAre(3, 0, 0));
}

TEST(JsonLines, ValuesBecomeFields) {
  const auto read = ReadJsonLines(R"({"b": true, "a": [1, 2.5, "x"], "c": 9007199254740993}
{"c": -1})",
                                  "f");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->csv, "\"a\",\"b\",\"c\"\n\"1|2.5|x\",\"1\",\"9007199254740993\"\n\"\",\"\",\"-1\"\n");
  EXPECT_THAT(read->lines, ElementsAre(1, 1, 2));
}

TEST(JsonLines, FaultsNameTheLineAndTheField) {
  const std::map<std::string, std::string> faults = {
      {"{\"a\": 1}\n\n[1]", "f: line 3: is not an object with fields"},
      {"{\"a\": 1}\n{\"b\": 1}", "f: line 2: the first object has no field 'b'"},
      {"{\"a\": {}}", "f: line 1: field 'a': is an object"},
      {"{\"a\": [\"x y\"]}", "f: line 1: field 'a': its list holds \"x y\""},
      {"{\"1\": 2}", "f: line 1: '1' cannot be the name of a field"},
      {"{\"a\": 1", "f: line 1"}};
  for (const auto& [text, fault] : faults)
    EXPECT_THAT(std::string(ReadJsonLines(text, "f").status().message()), HasSubstr(fault));
  const TemporaryDirectory dir;
  WriteText(dir / "a.jsonl",
            "{\"x\": \"1\", \"label\": 0}\n{\"x\": \"\\n\", \"label\": 1}\n{\"x\": \"z\", \"label\": 1}\n");
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.jsonl"}).status().message()),
              HasSubstr("a.jsonl: line 2: column 'x' "))
      << "the number is that of the file, whatever line breaks its texts have";
}

}  // namespace
}  // namespace cairn::data

// Broken data sets. Each is refused with a message that names the file, the place in it and the error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "tests/unit/data/npz_files.h"
#include "tests/unit/data/tf_record_files.h"

namespace cairn::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Files = std::map<std::string, std::string>;  // contents by name

struct Case {
  std::string name;
  Files files;
  const char* place;  // how the message begins, after the directory
  const char* words;
};

std::string Record(const std::string& x, const std::string& y) {
  return TfRecord(TfExample({{"x", x}, {"y", y}}));
}

std::string GoodRecord() {
  return Record(FloatsFeature({1, 2}), IntegersFeature({1}));
}

std::string WithByteFlipped(std::string text, size_t at) {
  text[at] ^= 1;
  return text;
}

std::string Floats(int count, char byte) {
  return std::string(static_cast<size_t>(4 * count), byte);
}

void ExpectRefused(const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    const TemporaryDirectory dir;
    for (const auto& [name, contents] : test.files) WriteText(dir / name, contents);
    const auto status = LoadTrainingData({.path = dir.path()}).status();
    EXPECT_FALSE(status.ok()) << test.name;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(dir / test.place), HasSubstr(test.words)))
        << test.name;
  }
}

TEST(BrokenFiles, IdxErrorsNameTheFile) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const std::string good_images = IdxHeader(0x08, {2, 2, 2}) + "abcdefgh";
  const std::string good_labels = IdxHeader(0x08, {2}) + Bytes({3, 1});
  ExpectRefused({
      {"fewer labels",
       {{images, good_images}, {labels, IdxHeader(0x08, {1}) + "a"}},
       "train-images-idx3-ubyte has 2",
       "train-labels-idx1-ubyte has 1 targets"},
      {"huge label",
       {{images, good_images}, {labels, IdxHeader(0x0C, {2}) + Bytes({0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0})}},
       "train-labels-idx1-ubyte: ",
       "label 2147483647 of example 0 is not a class index"},
      {"infinite target",
       {{images, good_images}, {labels, IdxHeader(0x0D, {2}) + Bytes({0, 0, 0, 0, 0x7F, 0x80, 0, 0})}},
       "train-labels-idx1-ubyte: ",
       "target inf of example 1 is not finite"},
      {"no examples",
       {{images, IdxHeader(0x08, {0, 2, 2})}, {labels, IdxHeader(0x08, {0})}},
       "train-images-idx3-ubyte: ",
       "holds no examples"},
      {"empty examples",
       {{images, IdxHeader(0x08, {2, 0, 2})}, {labels, good_labels}},
       "train-images-idx3-ubyte: ",
       "examples of the shape [2,0,2] are empty"},
      {"no labels", {{images, good_images}}, "train-images-idx3-ubyte", "exists, but not"},
      {"cut short",
       {{images, good_images.substr(0, 20)}, {labels, good_labels}},
       "train-images-idx3-ubyte: ",
       "is cut short: its header declares uint8 [2,2,2] = 8 bytes, 4 are there"},
  });
}

TEST(BrokenFiles, NpyErrorsNameTheFile) {
  const std::string x = Npy("<f4", "(2, 1)", Floats(2, 0)), y = Npy("|u1", "(2,)", Bytes({0, 1}));
  const std::string infinity = Bytes({0, 0, 0x80, 0x7F}), minus_one = Bytes({0, 0, 0x80, 0xBF});
  ExpectRefused({
      {"no targets", {{"x_train.npy", x}}, "y_train.npy", "cannot be opened"},
      {"no inputs", {{"y_train.npy", y}}, "x_train.npy", "cannot be opened"},
      {"no validation targets",
       {{"x_train.npy", x}, {"y_train.npy", y}, {"x_test.npy", x}},
       "y_test.npy",
       "cannot be opened"},
      {"no npy",
       {{"x_train.npy", "PK and more"}, {"y_train.npy", y}},
       "x_train.npy: ",
       "its magic number is wrong"},
      {"cut short",
       {{"x_train.npy", x.substr(0, x.size() - 1)}, {"y_train.npy", y}},
       "x_train.npy: ",
       "is cut short: its header declares float32 [2,1] = 8 bytes, 7 are there"},
      {"infinite weight",
       {{"x_train.npy", x},
        {"y_train.npy", y},
        {"sample_weight_train.npy", Npy("<f4", "(2,)", Floats(1, 0) + infinity)}},
       "sample_weight_train.npy: ",
       "weight inf of example 1 is not a finite number of at least 0"},
      {"negative weight",
       {{"x_train.npy", x},
        {"y_train.npy", y},
        {"sample_weight_train.npy", Npy("<f4", "(2,)", minus_one + infinity)}},
       "sample_weight_train.npy: ",
       "weight -1 of example 0 is not a finite number of at least 0"},
      {"weights of another number",
       {{"x_train.npy", x},
        {"y_train.npy", y},
        {"sample_weight_train.npy", Npy("<f4", "(3,)", Floats(3, 0))}},
       "x_train.npy has 2 examples, but",
       "sample_weight_train.npy has 3 weights"},
      {"weights of another shape",
       {{"x_train.npy", x}, {"y_train.npy", y}, {"sample_weight_train.npy", Npy("<f4", "(2, 0)", "")}},
       "sample_weight_train.npy: ",
       "weights have the shape [2,0]; it must be [examples]"},
  });
}

TEST(BrokenFiles, NpzErrorsNameTheArray) {
  const TemporaryDirectory dir;
  const auto refusal = [&](const Files& members, const std::vector<std::string>& input_names = {}) {
    WriteNpz(dir / "a.npz", members);
    return std::string(
        LoadTrainingData({.path = dir / "a.npz", .input_names = input_names}).status().message());
  };
  const std::string x = Npy("<f4", "(2, 1)", Floats(2, 0)), y = Npy("|u1", "(2,)", Bytes({0, 1}));
  EXPECT_THAT(refusal({{"x_train.npy", Npy("<f4", "()", Floats(1, 0))}, {"y_train.npy", y}}),
              HasSubstr("a.npz: x_train: inputs are a scalar"));
  EXPECT_THAT(
      refusal({{"x_train_a.npy", x}, {"x_train_b.npy", Npy("|u1", "(3,)", "abc")}, {"y_train.npy", y}},
              {"a", "b"}),
      AllOf(HasSubstr("a.npz: x_train_a has 2 examples, but "), HasSubstr("a.npz: x_train_b has 3")));
}

TEST(BrokenFiles, CifarErrorsNameFileAndRecord) {
  const std::string record(3073, '\1');
  ExpectRefused({
      {"cut short",
       {{"data_batch_1.bin", record.substr(1)}},
       "data_batch_1.bin: ",
       "has 3072 bytes, not a multiple of the 3073 that a record of 1 label and a 32x32x3 image takes"},
      {"empty", {{"data_batch_1.bin", ""}}, "data_batch_1.bin: ", "has 0 bytes"},
      {"wrong label",
       {{"data_batch_1.bin", record + '\x0A' + record.substr(1)}},
       "data_batch_1.bin: record 1: ",
       "has the label 10, but CIFAR-10 has labels up to 9"},
      {"CIFAR-10 as CIFAR-100", {{"train.bin", record}}, "train.bin: ", "not a multiple of the 3074"},
  });
}

TEST(BrokenFiles, CsvErrorsNameFileAndLine) {
  ExpectRefused({
      {"empty", {{"train.csv", ""}}, "train.csv: ", "holds no examples"},
      {"header only", {{"train.csv", "a,b,label\n"}}, "train.csv: ", "holds no examples"},
      {"one column", {{"train.csv", "label\n1\n"}}, "train.csv: ", "has only one column, the label"},
      {"a field less",
       {{"train.csv", "a,b,label\n1,2,0\n1,0\n"}},
       "train.csv: line 3: ",
       "has 2 fields, but the first line has 3"},
      {"a field more", {{"train.csv", "a,b,label\n1,2,0,\n"}}, "train.csv: line 2: ", "has 4 fields"},
      {"a word",
       {{"train.csv", "a,b,label\n1,2,0\n1,x,0\n"}},
       "train.csv: line 3: ",
       "column 'b' holds 'x', which is not a number"},
      {"no control characters on the terminal",
       {{"train.csv", "a,label\n\x1B[2J,0\n"}},
       "train.csv: line 2: ",
       "holds '\\x1b[2J', which is not a number"},
      {"infinity",
       {{"train.csv", "a,label\n1e999,0\n"}},
       "train.csv: line 2: ",
       "holds '1e999', which is not a number"},
      {"a value is missing", {{"train.csv", "a,label\n,0\n"}}, "train.csv: line 2: ", "column 'a' is empty"},
      {"a label is missing",
       {{"train.csv", "a,label\n1,\n"}},
       "train.csv: line 2: ",
       "the label in column 'label' is missing"},
      {"a label is a word",
       {{"train.csv", "a,label\n1,0\n1,cat\n"}},
       "train.csv: line 3: ",
       "is 'cat', which is not a class index"},
      {"a quote stays open",
       {{"train.csv", "a,label\n\"1,0\n2,1\n"}},
       "train.csv: line 2: ",
       "a quote is opened and never closed"},
      {"text behind a quote",
       {{"train.csv", "a,label\n\"1\"2,0\n"}},
       "train.csv: line 2: ",
       "text follows the closing quote of field 1"},
      {"another header",
       {{"train.csv", "a,label\n1,0\n"}, {"test.csv", "b,label\n1,0\n"}},
       "test.csv: line 1: ",
       "the header differs"},
      {"a new word",
       {{"train.csv", "a,label\n1,cat\n"}, {"test.csv", "a,label\n1,cow\n"}},
       "test.csv: line 2: ",
       "is 'cow', which is not one of the training set's classes"},
  });
}

TEST(BrokenFiles, TfRecordErrorsNameFileAndRecord) {
  const std::string good = GoodRecord();
  ExpectRefused({
      {"empty", {{"train.tfrecord", ""}}, "train.tfrecord: ", "holds no examples"},
      {"no TFRecord",
       {{"train.tfrecord", "this is some text"}},
       "train.tfrecord: record 0: ",
       "its length does not match its checksum"},
      {"cut in a length",
       {{"train.tfrecord", good + "abc"}},
       "train.tfrecord: record 1: ",
       "the file ends within the record's length"},
      {"cut in a record",
       {{"train.tfrecord", good + good.substr(0, good.size() - 1)}},
       "train.tfrecord: record 1: ",
       "is cut short"},
      {"wrong length",
       {{"train.tfrecord", WithByteFlipped(good, 0)}},
       "train.tfrecord: record 0: ",
       "its length does not match its checksum"},
      {"wrong byte",
       {{"train.tfrecord", good + WithByteFlipped(good, 13)}},
       "train.tfrecord: record 1: ",
       "bytes do not match their checksum"},
      {"no Example",
       {{"train.tfrecord", TfRecord("\xFF\xFF\xFF")}},
       "train.tfrecord: record 0: ",
       "is not a tf.Example"},
      {"no input",
       {{"train.tfrecord", TfRecord(TfExample({{"y", IntegersFeature({1})}}))}},
       "train.tfrecord: record 0: ",
       "has no feature image or image_raw or x or features or inputs or image/encoded; it has: y"},
      {"no label",
       {{"train.tfrecord", TfRecord(TfExample({{"x", FloatsFeature({1})}}))}},
       "train.tfrecord: record 0: ",
       "has no feature label or y or target or class or image/class/label; it has: x"},
      {"empty input",
       {{"train.tfrecord", Record(FloatsFeature({}), IntegersFeature({1}))}},
       "train.tfrecord: record 0: ",
       "'x': is empty"},
      {"malformed list",
       {{"train.tfrecord", Record(Nested(2, Nested(1, "abc")), IntegersFeature({1}))}},
       "train.tfrecord: record 0: ",
       "'x': holds a malformed float_list"},
      {"two strings",
       {{"train.tfrecord", Record(Nested(1, Nested(1, "a") + Nested(1, "b")), IntegersFeature({1}))}},
       "train.tfrecord: record 0: ",
       "'x': holds 2 strings of bytes, not one"},
      {"a label of bytes",
       {{"train.tfrecord", Record(FloatsFeature({1}), BytesFeature("cat"))}},
       "train.tfrecord: record 0: ",
       "'y': the label is a bytes_list"},
      {"a negative label",
       {{"train.tfrecord", Record(FloatsFeature({1}), IntegersFeature({99999999}))}},
       "train.tfrecord: record 0: ",
       "label 99999999 is not a class index"},
      {"another type",
       {{"train.tfrecord", good + Record(IntegersFeature({1, 2}), IntegersFeature({1}))}},
       "train.tfrecord: record 1: ",
       "'x': is a int64_list of 2 values, not a float_list of 2 values"},
      {"another size in validation",
       {{"train.tfrecord", good}, {"test.tfrecord", Record(FloatsFeature({1}), IntegersFeature({1}))}},
       "test.tfrecord: record 0: ",
       "'x': is a float_list of 1 values"},
  });
}

TEST(BrokenFiles, ADamagedGzipFileIsRefused) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "train.tfrecord.gz", GoodRecord());
  const std::string packed = ReadText(dir / "train.tfrecord.gz");
  WriteText(dir / "train.tfrecord.gz", packed.substr(0, packed.size() - 5));
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir.path()}).status().message()),
              HasSubstr("train.tfrecord.gz: the compressed file is cut short"));
}

}  // namespace
}  // namespace cairn::data

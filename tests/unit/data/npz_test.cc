#include "data/array/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/array/zip_file.h"
#include "data/dataset.h"
#include "tests/unit/data/examples.h"
#include "tests/unit/data/npz_files.h"

namespace cairn::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename T>
std::vector<T> Elements(const Array& array) {
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

// Writes one member "x.npy" and reads it back.
absl::StatusOr<Array> ReadX(const std::string& npy, zip_int32_t method = ZIP_CM_STORE) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x.npy", npy}}, method);
  const auto file = NpzFile::Open(dir / "a.npz");
  if (!file.ok()) return file.status();
  return file->Read("x");
}

TEST(NpzFile, ReadsStoredAndDeflatedMembers) {
  const std::string npy = Npy("|u1", "(40, 50)", std::string(2000, '\x05'));
  for (const zip_int32_t method : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    const auto array = ReadX(npy, method);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->shape, Shape({40, 50}));
    EXPECT_THAT(array->bytes, AllOf(SizeIs(2000), Each(5)));
  }
}

// numpy.savez opens every member with force_zip64, which libzip cannot write. Python's zipfile wrote this
// archive.
TEST(NpzFile, ReadsTheZip64MembersOfNumPy) {
  const TemporaryDirectory dir;
  WriteText(
      dir / "a.npz",
      absl::HexStringToBytes(
          "504b03042d0000000000000021000c9e39afffffffffffffffff05001400782e6e707901001000830000000000000083"
          "00000000000000934e554d5059010076007b276465736372273a20277c7531272c2027666f727472616e5f6f72646572"
          "273a2046616c73652c20277368617065273a2028332c292c207d20202020202020202020202020202020202020202020"
          "20202020202020202020202020202020202020202020202020202020202020202020202020200a070809504b01022d03"
          "2d0000000000000021000c9e39af8300000083000000050000000000000000000000800100000000782e6e7079504b05"
          "06000000000100010033000000ba0000000000"));
  const auto array = NpzFile::Open(dir / "a.npz")->Read("x");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->bytes, ElementsAre(7, 8, 9));
}

TEST(Half, ConvertsToTheFloatOfItsBits) {
  const std::pair<uint16_t, float> values[] = {{0x0000, 0.0f},
                                               {0x3C00, 1.0f},
                                               {0xC500, -5.0f},
                                               {0x3555, 0.333251953125f},
                                               {0x7BFF, 65504.0f},
                                               {0x0400, 0x1p-14f},
                                               {0x03FF, 1023 * 0x1p-24f},
                                               {0x8001, -0x1p-24f},
                                               {0xFC00, -std::numeric_limits<float>::infinity()}};
  for (const auto& [bits, value] : values) EXPECT_EQ(static_cast<float>(Half{bits}), value) << bits;
  EXPECT_TRUE(std::signbit(static_cast<float>(Half{0x8000})));
  EXPECT_TRUE(std::isnan(static_cast<float>(Half{0x7E00})));
}

TEST(NpzFile, ArraysInFortranOrderAreTransposed) {
  const auto read = [](const std::string& shape, const std::string& descr, const std::string& data) {
    auto array = ReadX(NpyWithHeader(
        absl::StrCat("{'descr': '", descr, "', 'fortran_order': True, 'shape': ", shape, "}"), data));
    EXPECT_TRUE(array.ok()) << array.status();
    return *array;
  };
  // Element [i,j] of [2,3] is at i + 2 j, element [i,j,k] of [2,2,3] at i + 2 j + 4 k.
  EXPECT_THAT(read("(2, 3)", "|u1", Bytes({0, 10, 1, 11, 2, 12})).bytes, ElementsAre(0, 1, 2, 10, 11, 12));
  EXPECT_THAT(Elements<int16_t>(read("(2, 2)", ">i2", Bytes({0, 1, 0, 3, 0, 2, 0, 4}))),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read("(2, 2, 3)", "|u1", Bytes({0, 100, 10, 110, 1, 101, 11, 111, 2, 102, 12, 112})).bytes,
              ElementsAre(0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112));
  EXPECT_THAT(read("(3,)", "|u1", Bytes({1, 2, 3})).bytes, ElementsAre(1, 2, 3));
}

TEST(NpzFile, MoreRowsThanABlockInFortranOrderAreTransposed) {
  constexpr int kRows = 150;
  std::string data(2 * kRows, '\0');
  for (int i = 0; i < kRows; ++i) {
    data[static_cast<size_t>(i)] = static_cast<char>(i);
    data[static_cast<size_t>(kRows + i)] = static_cast<char>(255 - i);
  }
  const auto array = ReadX(NpyWithHeader("{'descr': '|u1', 'fortran_order': True, 'shape': (150, 2)}", data));
  ASSERT_TRUE(array.ok()) << array.status();
  for (size_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(array->bytes.data()[2 * i], i);
    EXPECT_EQ(array->bytes.data()[2 * i + 1], 255 - i);
  }
}

TEST(NpzFile, ReadsEveryTypeOfEitherByteOrder) {
  const auto read = [](const std::string& descr, const std::string& data) {
    auto array = ReadX(Npy(descr, "(1,)", data));
    EXPECT_TRUE(array.ok()) << array.status();
    return *array;
  };
  EXPECT_THAT(Elements<uint8_t>(read("|u1", "\xFF")), ElementsAre(255));
  EXPECT_THAT(Elements<uint8_t>(read("|b1", "\x01")), ElementsAre(1));
  EXPECT_THAT(Elements<int8_t>(read("|i1", "\xFF")), ElementsAre(-1));
  EXPECT_THAT(Elements<int16_t>(read("<i2", Bytes({1, 2}))), ElementsAre(0x0201));
  EXPECT_THAT(Elements<int16_t>(read(">i2", Bytes({1, 2}))), ElementsAre(0x0102));
  EXPECT_THAT(Elements<int32_t>(read("<i4", Bytes({254, 255, 255, 255}))), ElementsAre(-2));
  EXPECT_THAT(Elements<int64_t>(read("<i8", Bytes({7, 0, 0, 0, 1, 0, 0, 0}))),
              ElementsAre((int64_t{1} << 32) + 7));
  EXPECT_THAT(Elements<uint16_t>(read("<u2", Bytes({1, 255}))), ElementsAre(0xFF01));
  EXPECT_THAT(Elements<uint16_t>(read(">u2", Bytes({1, 255}))), ElementsAre(0x01FF));
  EXPECT_THAT(Elements<uint32_t>(read("<u4", Bytes({0, 0, 0, 128}))), ElementsAre(0x80000000u));
  EXPECT_THAT(Elements<uint64_t>(read("<u8", Bytes({1, 0, 0, 0, 0, 0, 0, 128}))),
              ElementsAre((uint64_t{1} << 63) + 1));
  EXPECT_THAT(Elements<float>(read("<f4", Bytes({0, 0, 0xC0, 0x3F}))), ElementsAre(1.5f));
  EXPECT_THAT(Elements<float>(read(">f4", Bytes({0x3F, 0xC0, 0, 0}))), ElementsAre(1.5f));
  EXPECT_THAT(Elements<double>(read("<f8", Bytes({0, 0, 0, 0, 0, 0, 0x04, 0xC0}))), ElementsAre(-2.5));
}

TEST(NpzFile, ReadsEveryHeaderThatNumPyWrites) {
  const char* const kHeaders[] = {
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}",
      "{'shape': (2, 3), 'fortran_order': False, 'descr': '|u1'}",
      "{\"descr\": \"|u1\",\"fortran_order\":False,\"shape\":( 2 ,3 , ) }",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2L, 3L), }",  // Python 2
  };
  for (const char* header : kHeaders) {
    for (const int version : {1, 2, 3}) {
      const auto array = ReadX(NpyWithHeader(header, "abcdef", version));
      ASSERT_TRUE(array.ok()) << header << array.status();
      EXPECT_EQ(array->shape, Shape({2, 3}));
    }
  }
  EXPECT_EQ(ReadX(Npy("|u1", "()", "a"))->shape, Shape());
  EXPECT_EQ(ReadX(Npy("|u1", "(0, 5)", ""))->shape, Shape({0, 5}));
}

TEST(NpzFile, BrokenArraysAreRefusedByName) {
  const auto headed = [](const char* dictionary) { return NpyWithHeader(dictionary, "abcdef"); };
  const std::string good = Npy("|u1", "(2, 3)", "abcdef");
  const struct {
    std::string npy;
    const char* words;
  } kCases[] = {
      {"", "ends within its npy header"},
      {good.substr(0, 7), "ends within its npy header"},
      {good.substr(0, 9), "ends within its npy header"},
      {good.substr(0, 40), "ends within its npy header"},
      {"PK" + good, "is not an npy array: its magic number is wrong"},
      {NpyWithHeader("{}", "", 4), "has npy version 4; 1 to 3 are supported"},
      {"\x93NUMPY" + Bytes({2, 0, 0, 0, 0, 0x70}), "has an oversized npy header of 1879048192 bytes"},
      {good.substr(0, good.size() - 1),
       "is cut short: its header declares uint8 [2,3] = 6 bytes, 5 are there"},
      {good + "g", "its header declares uint8 [2,3] = 6 bytes, but more bytes follow"},
      {Npy("|O", "(1,)", "x"), "holds pickled Python objects (dtype object), which are not supported"},
      {Npy("<U4", "(1,)", "x"),
       "has dtype '<U4' (a string), which is not supported; bool, integers, float16"},
      {Npy("<c8", "(1,)", "x"), "has dtype '<c8' (complex64), which is not supported"},
      {Npy("<f16", "(1,)", "x"), "has dtype '<f16' (float128), which is not supported"},
      {Npy("<M8[ns]", "(1,)", "x"), "has dtype '<M8[ns]' (datetime64), which is not supported"},
      {Npy("|V2", "(1,)", "x"),
       "has dtype '|V2' (void: raw bytes, such as bfloat16), which is not supported"},
      {Npy("<u3", "(1,)", "x"), "has dtype '<u3' (unknown), which is not supported"},
      {Npy("", "(1,)", "x"), "has dtype '' (unknown), which is not supported"},
      {headed("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "holds structures"},
      {headed("{'descr': '|u1', 'fortran_order': 0, 'shape': (2, 3)}"),
       "fortran_order is neither True nor False"},
      {headed("['descr']"), "it is not a dictionary"},
      {headed("{'descr': '|u1', 'shape': (2, 3)}"), "descr, fortran_order or shape is missing"},
      {headed("{'descr': '|u1', 'descr': '|u1'}"), "'descr' occurs twice"},
      {headed("{'descr': '|u1', 'strides': (2, 3)}"), "unknown key 'strides'"},
      {headed("{'descr': '|u1' 'shape': (2, 3)}"), "a comma is missing"},
      {headed("{'descr': '|u1, }"), "descr is not a string"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': [2, 3]}"), "shape is not a tuple"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (2 3)}"), "a comma is missing in shape"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (-2, 3)}"), "an extent is not a number"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)} x"), "text follows the dictionary"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}"),
       "more than 8 dimensions"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
       "an extent is not a number"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
       "more than 2^40 elements"},
      {headed("{'descr': '<f8', 'fortran_order': False, 'shape': (17179869184,)}"), "more than the limit of"},
      {headed("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296,)}"),
       "a file of this size cannot hold"},
      {headed("{"), "a key is missing"},
  };
  for (const auto& test : kCases) {
    const auto status = ReadX(test.npy).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.words;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a.npz: x: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.words));
  }
}

TEST(NpzFile, AMissingArrayIsNotFoundAndTheOthersAreListed) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x.npy", ""}, {"y.npy", ""}});
  const auto status = NpzFile::Open(dir / "a.npz")->Read("z").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.npz: has no array z; it has: x, y"));
}

TEST(NpzFile, FilesThatAreNotZipArchivesAreRefusedByName) {
  const TemporaryDirectory dir;
  EXPECT_EQ(NpzFile::Open(dir / "missing.npz").status().code(), absl::StatusCode::kNotFound);
  WriteText(dir / "text.npz", "not a zip archive at all, though it is long enough to be one");
  WriteNpz(dir / "good.npz", {{"x.npy", Npy("|u1", "(2, 3)", "abcdef")}});
  const std::string good = ReadText(dir / "good.npz");
  WriteText(dir / "cut.npz", good.substr(0, good.size() - 10));
  WriteText(dir / "empty.npz", "");
  for (const char* name : {"text.npz", "cut.npz", "empty.npz"}) {
    const auto status = NpzFile::Open(dir / name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / name + ": is not a readable zip archive"));
  }
}

// Replaces the size in the local header (found by "PK\3\4") and in the directory entry ("PK\1\2") by `size`.
std::string WithPatchedSize(std::string archive, uint32_t size) {
  const size_t local = archive.find("PK\x03\x04"), central = archive.find("PK\x01\x02");
  for (int i = 0; i < 4; ++i) {
    archive[local + 22 + static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
    archive[central + 24 + static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
  }
  return archive;
}

TEST(NpzFile, ReadingAMemberThatClaimsMoreThanItCanUnpackToFails) {
  const TemporaryDirectory dir;
  const std::string npy = Npy("|u1", "(4000000000,)", std::string(1000, 'x'));
  for (const zip_int32_t method : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    WriteNpz(dir / "a.npz", {{"x.npy", npy}}, method);
    WriteText(dir / "bomb.npz", WithPatchedSize(ReadText(dir / "a.npz"), 0xF0000000));
    const auto file = NpzFile::Open(dir / "bomb.npz");
    ASSERT_TRUE(file.ok()) << file.status();  // libzip believes the size
    const auto status = file->Read("x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("4026531840 bytes"));
  }
}

TEST(NpzFile, ADamagedMemberFailsItsChecksum) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x.npy", Npy("|u1", "(6,)", "abcdef")}});
  std::string archive = ReadText(dir / "a.npz");
  archive[archive.find("abcdef")] = 'X';
  WriteText(dir / "b.npz", archive);
  EXPECT_THAT(std::string(NpzFile::Open(dir / "b.npz")->Read("x").status().message()),
              HasSubstr("x: is damaged: its bytes do not match their CRC-32 checksum"));
}

// libzip itself compares only if bytes after the last one are read.
TEST(ZipFile, ChecksumsAreComparedWhenTheLastByteIsRead) {
  const TemporaryDirectory dir;
  for (const zip_int32_t method : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    WriteNpz(dir / "a.zip", {{"x", "abcdef"}}, method);
    const auto take = [&](int64_t count) {
      const auto archive = ZipFile::Open(dir / "a.zip");
      return (*archive->OpenMember("x"))->Take(count).status();
    };
    EXPECT_TRUE(take(6).ok()) << take(6);
    std::string archive = ReadText(dir / "a.zip");
    for (size_t at = archive.find("PK\x01\x02") + 16, end = at + 4; at < end; ++at) archive[at] ^= 1;
    for (size_t at = 14; at < 18; ++at) archive[at] ^= 1;  // and in the local header
    WriteText(dir / "a.zip", archive);
    EXPECT_TRUE(take(5).ok()) << take(5);
    EXPECT_THAT(std::string(take(6).message()), HasSubstr("CRC-32"));
  }
}

std::map<std::string, std::string> SmallMnist() {
  return {{"x_train.npy", Npy("|u1", "(2, 2, 2)", Bytes({0, 51, 102, 255, 1, 2, 3, 4}))},
          {"y_train.npy", Npy("|u1", "(2,)", Bytes({3, 1}))},
          {"x_test.npy", Npy("|u1", "(1, 2, 2)", Bytes({255, 255, 0, 0}))},
          {"y_test.npy", Npy("<i8", "(1,)", Bytes({9, 0, 0, 0, 0, 0, 0, 0}))}};
}

TEST(LoadTrainingDataFromNpz, ReadsKerasMnistFromTheFileOrItsDirectory) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "mnist.npz", SmallMnist(), ZIP_CM_DEFLATE);
  for (const std::string& path : {dir.path(), dir / "mnist.npz"}) {
    const auto data = LoadTrainingData({.path = path});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->example_shape(), Shape({2, 2}));
    EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
    EXPECT_THAT(ReadExample(*data->train, 0).inputs,
                ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f, 1.0f));
    EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(9));
  }
}

TEST(LoadTrainingDataFromNpz, TheValidationSetMayBeMissing) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members.erase("x_test.npy");
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("has no array x_test; it has: x_train, y_test, y_train"));
  members.erase("y_test.npy");
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation, nullptr);
}

std::map<std::string, std::string> TrainingArrays() {
  auto members = SmallMnist();
  members.erase("x_test.npy");
  members.erase("y_test.npy");
  return members;
}

TEST(LoadTrainingDataFromNpz, TheValidationSetHasAnyOfItsUsualNames) {
  const TemporaryDirectory dir;
  for (const std::string set : {"val", "valid", "validation", "test"}) {
    for (const std::string initial : {"x", "X"}) {
      auto members = TrainingArrays();
      members[initial + "_" + set + ".npy"] = SmallMnist()["x_test.npy"];
      members["y_" + set + ".npy"] = SmallMnist()["y_test.npy"];
      WriteNpz(dir / "a.npz", members);
      const auto data = LoadTrainingData({.path = dir / "a.npz"});
      ASSERT_TRUE(data.ok()) << data.status();
      ASSERT_NE(data->validation, nullptr) << set;
      EXPECT_EQ(data->validation->inputs_name(), dir / "a.npz: " + initial + "_" + set);
      EXPECT_THAT(data->remarks, IsEmpty());
    }
  }
}

TEST(LoadTrainingDataFromNpz, ValidationIsPreferredToTestAndUnusedArraysAreNamed) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members["x_val.npy"] = members["x_test.npy"];
  members["y_val.npy"] = members["y_test.npy"];
  members["x_extra.npy"] = members["x_test.npy"];
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->validation->inputs_name(), dir / "a.npz: x_val");
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("unused arrays: x_extra, x_test, y_test")));
}

TEST(LoadTrainingDataFromNpz, AnIncompleteSetIsRefused) {
  const TemporaryDirectory dir;
  auto members = TrainingArrays();
  members["x_val.npy"] = SmallMnist()["x_test.npy"];
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("has no array y_val; it has: x_train, x_val, y_train"));
}

TEST(LoadTrainingDataFromNpz, TwoSpellingsOfOneArrayAreRefused) {
  const TemporaryDirectory dir;
  auto members = TrainingArrays();
  members["X_train.npy"] = members["x_train.npy"];
  WriteNpz(dir / "a.npz", members);
  EXPECT_THAT(std::string(LoadTrainingData({.path = dir / "a.npz"}).status().message()),
              HasSubstr("a.npz: x_train exists in addition to X_train"));
}

TEST(LoadTrainingDataFromNpz, ALayerThatScalesBytesGetsThemUnchanged) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", SmallMnist());
  DataOptions options = {.path = dir / "a.npz", .raw_bytes = {true}};
  const auto raw = LoadTrainingData(options);
  ASSERT_TRUE(raw.ok()) << raw.status();
  EXPECT_THAT(ReadExample(*raw->train, 0).inputs, ElementsAre(0, 51, 102, 255));
  EXPECT_THAT(ReadExample(*raw->validation, 0).inputs, ElementsAre(255, 255, 0, 0));
  EXPECT_THAT(raw->byte_inputs, ElementsAre(true));
  options.input_scale = 2;
  EXPECT_THAT(ReadExample(*LoadTrainingData(options)->train, 0).inputs, ElementsAre(0, 102, 204, 510));
}

TEST(LoadTrainingDataFromNpz, EachInputDecidesHowItsBytesAreScaled) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_image.npy", Npy("|u1", "(1, 1, 2)", Bytes({0, 255}))},
                           {"x_train_word.npy", Npy("|u1", "(1, 1)", Bytes({7}))},
                           {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
  DataOptions options = {.path = dir / "a.npz",
                         .raw_bytes = {true, false},
                         .input_names = {"word", "image"},
                         .input_shapes = {{1}, {1, 2, 1}}};
  const auto data = LoadTrainingData(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(7, 0, 1));
  options.input_shapes = {{1}, {2, 3}};
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("x_train_image: examples have shape [1,2], input 'image' of the model takes [2,3]"));
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("|u1", "(1, 3)", Bytes({7, 0, 255}))},
                           {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
  EXPECT_THAT(std::string(LoadTrainingData(options).status().message()),
              HasSubstr("input 'word' takes them unchanged and input 'image' scaled"));
}

std::string Int64s(absl::Span<const int64_t> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)};
}

TEST(LoadTrainingDataFromNpz, IntegersReachAnInputOfIntegersAsTheyAre) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<i8", "(2, 2)", Int64s(kIds))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .input_scale = 0.5f,
                                      .input_names = {"ids"},
                                      .input_shapes = {{2}},
                                      .input_types = {DType::kInt64}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadIds(*data->train, 0), ElementsAre(kIds[0], kIds[1]));
  EXPECT_THAT(ReadIds(*data->train, 1), ElementsAre(kIds[2], kIds[3]));
  EXPECT_TRUE(data->train->status().ok());
}

TEST(LoadTrainingDataFromNpz, AnInputOfIntegersRefusesOtherNumbers) {
  const TemporaryDirectory dir;
  const DataOptions options = {
      .path = dir / "a.npz", .input_names = {"ids"}, .input_shapes = {{2}}, .input_types = {DType::kInt32}};
  const auto refusal = [&](const std::string& array) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", array}, {"y_train.npy", Npy("|u1", "(1,)", Bytes({0}))}});
    const auto data = LoadTrainingData(options);
    EXPECT_TRUE(data.ok()) << data.status();
    ReadIds(*data->train, 0);
    return std::string(data->train->status().message());
  };
  EXPECT_THAT(refusal(Npy("<i8", "(1, 2)", Int64s({3, int64_t{1} << 31}))),
              HasSubstr("a.npz: x_train: example 0: value 1 is 2147483648, and the model's input takes whole "
                        "numbers (int32)"));
  EXPECT_THAT(refusal(Npy("<f4", "(1, 2)", Bytes({0, 0, 0xC0, 0x3F, 0, 0, 0, 0}))),
              HasSubstr("value 0 is 1.5, and"));
  EXPECT_EQ(refusal(Npy("<f4", "(1, 2)", Bytes({0, 0, 0x80, 0x3F, 0, 0, 0, 0}))), "");
}

TEST(LoadTrainingDataFromNpz, FloatAndIntegerInputsKeepTheirTypes) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_id.npy", Npy("<i8", "(4, 1)", Int64s(kIds))},
                           {"x_train_image.npy", Npy("|u1", "(4, 2)", Bytes({0, 255, 1, 2, 3, 4, 5, 51}))},
                           {"y_train.npy", Npy("|u1", "(4,)", Bytes({0, 1, 0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .raw_bytes = {false, true},
                                      .input_names = {"image", "id"},
                                      .input_shapes = {{2}, {1}},
                                      .input_types = {DType::kFloat32, DType::kInt64}});
  ASSERT_TRUE(data.ok()) << data.status();
  InputRows rows(data->train->input_specs(), 1);
  float target = 0;
  data->train->Read(3, rows.Row(0), {&target, 1});
  EXPECT_THAT(rows.First(1)[0].floats(), ElementsAre(5.0f / 255, 51.0f / 255));
  EXPECT_EQ(rows.First(1)[1].Integer(0), kIds[3]);
}

constexpr int64_t kSplits[] = {0, 3, 4};

TEST(LoadTrainingDataFromNpz, ARaggedInputIsValuesAndRowSplits) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<i8", "(4,)", Int64s(kIds))},
                           {"x_train_row_splits.npy", Npy("<i8", "(3,)", Int64s(kSplits))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz",
                                      .input_names = {"ids"},
                                      .input_shapes = {{1}},
                                      .input_types = {DType::kInt64},
                                      .ragged_inputs = {true}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, testing::IsEmpty());
  InputRows rows(data->train->input_specs(), 2);
  float target = 0;
  for (int64_t row : {0, 1}) data->train->Read(row, rows.Row(row), {&target, 1});
  const TensorView ids = rows.First(2)[0];
  EXPECT_THAT(ids.row_splits, ElementsAre(0, 3, 4));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(ids.Integer(i), kIds[i]);
}

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(LoadTrainingDataFromNpz, RaggedIdsHaveWeightsAndMayBeNone) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::map<std::string, std::string>& more) {
    std::map<std::string, std::string> members = {
        {"x_train_ids.npy", Npy("<i8", "(3,)", Int64s({7, 8, 9}))},
        {"x_train_ids_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 1, 3}))},
        {"x_train_w.npy", Npy("<f4", "(3,)", BytesOf({0.5f, 2, -1}))},
        {"y_train.npy", Npy("|u1", "(3,)", Bytes({0, 1, 0}))}};
    members.insert(more.begin(), more.end());
    WriteNpz(dir / "a.npz", members);
    return LoadTrainingData({.path = dir / "a.npz",
                             .input_names = {"ids", "w"},
                             .input_shapes = {{1}, {1}},
                             .input_types = {DType::kInt64, DType::kFloat32},
                             .ragged_inputs = {true, true},
                             .weights_of = {-1, 0}});
  };
  const std::map<std::string, std::string> cases[] = {
      {}, {{"x_train_w_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 1, 3}))}}};
  for (const auto& more : cases) {
    const auto data = load(more);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_THAT(data->remarks, testing::IsEmpty());
    InputRows rows(data->train->input_specs(), 3);
    float target = 0;
    for (int64_t row : {0, 1, 2}) data->train->Read(row, rows.Row(row), {&target, 1});
    const TensorView ids = rows.First(3)[0], weights = rows.First(3)[1];
    EXPECT_THAT(ids.row_splits, ElementsAre(0, 1, 1, 3));
    EXPECT_THAT(weights.row_splits, ElementsAre(0, 1, 1, 3));
    EXPECT_EQ(ids.Integer(2), 9);
    EXPECT_THAT(weights.floats(), ElementsAre(0.5f, 2, -1));
  }
  const auto differs = load({{"x_train_w_row_splits.npy", Npy("<i8", "(4,)", Int64s({0, 1, 2, 3}))}});
  EXPECT_THAT(std::string(differs.status().message()),
              HasSubstr("x_train_w: example 1 has another number of weights than it has ids in"));
}

TEST(LoadTrainingDataFromNpz, BrokenRaggedInputsAreRefused) {
  const TemporaryDirectory dir;
  const auto refusal = [&](const std::map<std::string, std::string>& arrays) {
    auto members = arrays;
    members["y_train.npy"] = Npy("|u1", "(2,)", Bytes({0, 1}));
    WriteNpz(dir / "a.npz", members);
    return std::string(LoadTrainingData({.path = dir / "a.npz",
                                         .input_names = {"ids"},
                                         .input_shapes = {{1}},
                                         .input_types = {DType::kInt64},
                                         .ragged_inputs = {true}})
                           .status()
                           .message());
  };
  const std::string values = Npy("<i8", "(4,)", Int64s(kIds));
  const auto with = [&](std::vector<int64_t> splits) {
    return refusal(
        {{"x_train.npy", values},
         {"x_train_row_splits.npy", Npy("<i8", "(" + std::to_string(splits.size()) + ",)", Int64s(splits))}});
  };
  EXPECT_THAT(refusal({{"x_train.npy", values}}), HasSubstr("x_train_row_splits"));
  EXPECT_THAT(with({0, 3, 5}),
              HasSubstr("x_train: its row splits go from 0 to 5, not from 0 to its 4 values"));
  EXPECT_THAT(with({0, 5, 4}), HasSubstr("x_train: example 1: its row splits descend"));
  EXPECT_THAT(with({4}), HasSubstr("not integers [examples + 1]"));
  EXPECT_THAT(refusal({{"x_train.npy", Npy("<f4", "(2, 1)", std::string(8, '\0'))},
                       {"x_train_row_splits.npy", Npy("<i8", "(3,)", Int64s(kSplits))}}),
              HasSubstr("is float32 [2,1], but the values of a ragged input are integers along one axis"));
}

TEST(LoadTrainingDataFromNpz, LabelsMayBeAColumnAsInCifar) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train.npy", Npy("<f8", "(2, 1, 1, 3)", std::string(48, '\0'))},
                           {"y_train.npy", Npy("|u1", "(2, 1)", Bytes({5, 6}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({1, 1, 3}));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(6));
}

TEST(LoadTrainingDataFromNpz, ExamplesMayHaveWeights) {
  const TemporaryDirectory dir;
  auto members = SmallMnist();
  members["sample_weight_train.npy"] = Npy("<f4", "(2,)", Bytes({0, 0, 0x00, 0x3F, 0, 0, 0, 0x40}));
  WriteNpz(dir / "a.npz", members);
  const auto data = LoadTrainingData({.path = dir / "a.npz"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->train->weighted());
  EXPECT_EQ(ReadExample(*data->train, 0).weight, 0.5f);
  EXPECT_EQ(ReadExample(*data->train, 1).weight, 2.0f);
  EXPECT_FALSE(data->validation->weighted());
}

TEST(LoadTrainingDataFromNpz, StepsOfExamplesMayHaveWeights) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::string& shape, const std::string& bytes, bool validation = true) {
    auto members = SmallMnist();
    const std::string name = validation ? "sample_weight_train.npy" : "sample_weight_test.npy";
    members[name] = Npy("|u1", shape, bytes);
    if (!validation) members["sample_weight_train.npy"] = Npy("|u1", "(2,)", Bytes({7, 8}));
    WriteNpz(dir / "a.npz", members);
    return LoadTrainingData({.path = dir / "a.npz"});
  };
  for (const char* const shape : {"(2, 3)", "(2, 3, 1)"}) {
    const auto data = load(shape, Bytes({1, 2, 3, 4, 5, 6}));
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->weights()->shape, Shape({3}));
    EXPECT_THAT(data->train->WeightsOf(1), ElementsAre(4, 5, 6));
    EXPECT_FALSE(data->validation->weighted());
  }
  // A batch has weights of the same form in training and validation.
  const auto spread = load("(1, 3)", Bytes({1, 2, 3}), /*validation=*/false);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_THAT(spread->train->WeightsOf(1), ElementsAre(8, 8, 8));
  EXPECT_THAT(std::string(load("(3, 3)", std::string(9, '\1')).status().message()),
              HasSubstr("sample_weight_train has 3 weights"));
  EXPECT_THAT(std::string(load("(2, 0)", "").status().message()),
              HasSubstr("sample_weight_train: weights have the shape [2,0]"));
}

TEST(LoadTrainingDataFromNpz, SeveralInputsAreConcatenatedInTheModelsOrder) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "a.npz", {{"x_train_image.npy", Npy("|u1", "(2, 1, 2)", Bytes({0, 255, 51, 102}))},
                           {"x_train_age.npy", Npy("|i1", "(2,)", Bytes({7, 9}))},
                           {"y_train.npy", Npy("|u1", "(2,)", Bytes({0, 1}))}});
  const auto data = LoadTrainingData({.path = dir / "a.npz", .input_names = {"age", "image"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({3}));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(7, 0, 1));
  EXPECT_THAT(ReadExample(*data->train, 1).inputs, ElementsAre(9, 51.0f / 255.0f, 102.0f / 255.0f));
  EXPECT_THAT(
      std::string(
          LoadTrainingData({.path = dir / "a.npz", .input_names = {"age", "size"}}).status().message()),
      HasSubstr("has no array x_train_size; it has: x_train_age, x_train_image, y_train"));
}

TEST(LoadTrainingDataFromNpz, SeveralInputsMayBeJoinedInTheFile) {
  const TemporaryDirectory dir;
  WriteNpz(dir / "mnist.npz", SmallMnist());
  const auto data = LoadTrainingData({.path = dir.path(), .input_names = {"left", "right"}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape().num_elements(), 4);
}

// The same arrays in separate files, which are mapped.
TEST(LoadTrainingDataFromNpy, ReadsOneFileForEachArray) {
  const TemporaryDirectory dir;
  for (const auto& [name, contents] : SmallMnist()) WriteText(dir / name, contents);
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->example_shape(), Shape({2, 2}));
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(0.0f, 51.0f / 255.0f, 102.0f / 255.0f, 1.0f));
  EXPECT_THAT(ReadExample(*data->train, 1).target, ElementsAre(1));
  EXPECT_THAT(ReadExample(*data->validation, 0).target, ElementsAre(9));
}

TEST(LoadTrainingDataFromNpy, BigEndianNumbersAreConverted) {
  const TemporaryDirectory dir;
  WriteText(dir / "x_train.npy", Npy(">f4", "(1, 2)", Bytes({0x3F, 0xC0, 0, 0, 0xC0, 0, 0, 0})));
  WriteText(dir / "y_train.npy", Npy(">i2", "(1,)", Bytes({0, 3})));
  const auto data = LoadTrainingData({.path = dir.path()});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(ReadExample(*data->train, 0).inputs, ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(ReadExample(*data->train, 0).target, ElementsAre(3));
}

TEST(LoadTrainingDataFromNpz, EveryTypeOfInputBecomesFloats) {
  const TemporaryDirectory dir;
  const auto load = [&](const std::string& x) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", x}, {"y_train.npy", Npy("|b1", "(1,)", Bytes({1}))}});
    auto data = LoadTrainingData({.path = dir / "a.npz"});
    EXPECT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->num_classes(), 2) << "True is class 1";
    return ReadExample(*data->train, 0).inputs;
  };
  EXPECT_THAT(load(Npy("<f2", "(1, 2)", Bytes({0, 0x3C, 0, 0xC5}))), ElementsAre(1, -5));
  EXPECT_THAT(load(Npy("<u2", "(1, 2)", Bytes({0xFF, 0xFF, 1, 0}))), ElementsAre(65535, 1));
  EXPECT_THAT(load(Npy("|b1", "(1, 2)", Bytes({1, 0}))), ElementsAre(1, 0)) << "bool is not divided by 255";
}

TEST(LoadTrainingDataFromNpz, TargetsMayHaveOneValueForEachPixel) {
  const TemporaryDirectory dir;
  const std::string x = Npy("|u1", "(1, 2, 2, 1)", Bytes({1, 2, 3, 4}));
  const auto load = [&](const std::string& y, const DataOptions& options = {}) {
    WriteNpz(dir / "a.npz", {{"x_train.npy", x}, {"y_train.npy", y}});
    DataOptions full = options;
    full.path = dir / "a.npz";
    return LoadTrainingData(full);
  };
  const auto mask = load(Npy("|u1", "(1, 2, 2)", Bytes({0, 2, 1, 0})));
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_EQ(mask->train->target_info().shape, Shape({2, 2}));
  EXPECT_EQ(mask->train->target_info().position_classes, 3);
  EXPECT_EQ(mask->train->num_classes(), 0);
  EXPECT_THAT(ReadExample(*mask->train, 0).target, ElementsAre(0, 2, 1, 0));
  const auto signs = load(Npy("|i1", "(1, 2, 2)", Bytes({0, 255, 1, 0})));
  ASSERT_TRUE(signs.ok()) << signs.status();
  EXPECT_EQ(signs->train->target_info().position_classes, 0) << "-1 is no class";
  EXPECT_THAT(std::string(load(Npy("|u1", "(1, 2, 2)", Bytes({0, 2, 1, 0})), {.augmentation = {.flip = true}})
                              .status()
                              .message()),
              HasSubstr("targets have the shape [2,2] and would not be augmented with the images"));
}

}  // namespace
}  // namespace cairn::data

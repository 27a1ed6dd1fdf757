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

}  // namespace
}  // namespace cairn::data

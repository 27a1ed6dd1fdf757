#include "data/array/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> Elements(const Array& array) {
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

TEST(ReadIdx, ReadsBytesPlainAndGzipped) {
  const TemporaryDirectory dir;
  const std::string file = IdxHeader(0x08, {2, 3}) + Bytes({1, 2, 3, 4, 5, 255});
  WriteText(dir / "plain", file);
  WriteGzip(dir / "packed", file);
  for (const char* name : {"plain", "packed"}) {
    const auto array = ReadIdx(dir / name);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->type, ElementType::kUint8);
    EXPECT_EQ(array->shape, Shape({2, 3}));
    EXPECT_THAT(array->bytes, ElementsAre(1, 2, 3, 4, 5, 255));
  }
}

TEST(ReadIdx, ReadsEveryTypeFromBigEndian) {
  const TemporaryDirectory dir;
  const auto read = [&](int type, uint32_t count, const std::string& data) {
    WriteText(dir / "x", IdxHeader(type, {count}) + data);
    auto array = ReadIdx(dir / "x");
    EXPECT_TRUE(array.ok()) << array.status();
    return *array;
  };
  EXPECT_THAT(Elements<int8_t>(read(0x09, 2, Bytes({0xFF, 0x7F}))), ElementsAre(-1, 127));
  EXPECT_THAT(Elements<int16_t>(read(0x0B, 2, Bytes({0xFF, 0xFE, 0x01, 0x02}))), ElementsAre(-2, 0x102));
  EXPECT_THAT(Elements<int32_t>(read(0x0C, 1, Bytes({1, 2, 3, 4}))), ElementsAre(0x01020304));
  EXPECT_THAT(Elements<float>(read(0x0D, 1, Bytes({0x3F, 0xC0, 0, 0}))), ElementsAre(1.5f));
  EXPECT_THAT(Elements<double>(read(0x0E, 1, Bytes({0xC0, 0x04, 0, 0, 0, 0, 0, 0}))), ElementsAre(-2.5));
}

TEST(ReadIdx, BrokenFilesAreRefusedByName) {
  const std::string good = IdxHeader(0x08, {2, 3}) + "abcdef";
  const struct {
    const char* name;
    std::string contents;
    const char* words;
  } kCases[] = {
      {"empty", "", "ends within its header"},
      {"cut-magic", good.substr(0, 3), "ends within its header"},
      {"cut-extents", good.substr(0, 9), "ends within its header"},
      {"cut-data", good.substr(0, good.size() - 1),
       "is cut short: its header declares uint8 [2,3] = 6 bytes, 5 are there"},
      {"no-data", IdxHeader(0x08, {3, 28, 28}),
       "is cut short: its header declares uint8 [3,28,28] = 2352 bytes"},
      {"trailing", good + "g", "its header declares uint8 [2,3] = 6 bytes, but more bytes follow"},
      {"not-idx", "P5 28 28 255 ", "is not an IDX file: it starts with 50 35 20 32"},
      {"type-0a", Bytes({0, 0, 0x0A, 1, 0, 0, 0, 1, 7}), "is not an IDX file: it starts with 00 00 0a 01"},
      {"scalar", Bytes({0, 0, 8, 0, 7}), "has 0 dimensions, not 1 to 8"},
      {"rank-200", Bytes({0, 0, 8, 200}) + std::string(800, '\0'), "has 200 dimensions, not 1 to 8"},
      {"huge", IdxHeader(0x08, {0xFFFFFFFF, 0xFFFFFFFF}) + "x", "more than 2^40 elements"},
      {"product-overflows", IdxHeader(0x0E, {0x80000000, 0x80000000, 4}) + "x", "more than 2^40 elements"},
      {"over-the-limit", IdxHeader(0x0E, {0x10000, 0x10000}) + "x", "more than the limit of 17179869184"},
      {"cannot-hold-it", IdxHeader(0x08, {0xFFFFFFFF}) + "x", "which a file of this size cannot hold"},
  };
  const TemporaryDirectory dir;
  for (const auto& test : kCases) {
    WriteText(dir / test.name, test.contents);
    const auto status = ReadIdx(dir / test.name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / test.name + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.words));
  }
}

TEST(ReadIdx, ADamagedGzipFileIsRefused) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "good", IdxHeader(0x08, {4, 500}) + std::string(2000, 'x'));
  const std::string packed = ReadText(dir / "good");
  const auto refusal = [&](const std::string& contents) {
    WriteText(dir / "bad", contents);
    const auto status = ReadIdx(dir / "bad").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(packed.substr(0, packed.size() - 4)), HasSubstr("the compressed file is cut short"));
  EXPECT_THAT(refusal(packed.substr(0, 15)), HasSubstr("the compressed file is cut short"));
  std::string wrong_checksum = packed;
  wrong_checksum[packed.size() - 8] ^= 1;
  EXPECT_THAT(refusal(wrong_checksum), HasSubstr("cannot be unpacked: incorrect data check"));
  std::string wrong_length = packed;
  wrong_length[packed.size() - 4] ^= 1;
  EXPECT_THAT(refusal(wrong_length), HasSubstr("cannot be unpacked: incorrect length check"));
  EXPECT_THAT(refusal(packed + "more"),
              HasSubstr("is damaged: 4 bytes that are not gzip follow the compressed data"));
}

TEST(ReadIdx, AGzipFileMayHaveSeveralMembers) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "head", IdxHeader(0x08, {4}) + "ab");
  WriteGzip(dir / "tail", "cd");
  const std::string head = ReadText(dir / "head"), tail = ReadText(dir / "tail");
  WriteText(dir / "both", head + tail + std::string(7, '\0'));  // padded, as on tapes
  const auto array = ReadIdx(dir / "both");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(std::string(array->bytes.begin(), array->bytes.end()), "abcd");
  std::string lost = tail;
  lost[0] = 'x';
  WriteText(dir / "both", head + lost);
  EXPECT_THAT(std::string(ReadIdx(dir / "both").status().message()), HasSubstr("that are not gzip follow"));
}

// 20 bytes of gzip cannot contain 4 GB, whatever their header claims: nothing is allocated.
TEST(ReadIdx, AHeaderCannotClaimMoreThanGzipCanContain) {
  const TemporaryDirectory dir;
  WriteGzip(dir / "bomb", IdxHeader(0x08, {0xFFFFFFFF}));
  EXPECT_THAT(std::string(ReadIdx(dir / "bomb").status().message()),
              HasSubstr("a file of this size cannot hold"));
}

TEST(ReadIdx, AMissingFileIsNotFoundAndADirectoryIsRefused) {
  const TemporaryDirectory dir;
  EXPECT_EQ(ReadIdx(dir / "missing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadIdx(dir.path()).status().message()), HasSubstr("is not a regular file"));
}

TEST(WriteIdx, WritesTheBytesOfTheFormat) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(
      WriteIdx(dir / "x", {ElementType::kUint8, {2, 1}, SharedBytes(std::vector<uint8_t>{7, 200})}).ok());
  EXPECT_EQ(ReadText(dir / "x"), IdxHeader(0x08, {2, 1}) + Bytes({7, 200}));
}

}  // namespace
}  // namespace cairn::data

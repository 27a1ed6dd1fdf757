#include "common/net/wire/row_frame.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::Rows Rows(int64_t count) {
  v1::Rows rows;
  rows.set_table(1);
  rows.set_count(count);
  return rows;
}

TEST(ReceivedRows, KeepEveryId) {
  const std::vector<int64_t> ids = {(int64_t{1} << 24) + 1, (int64_t{1} << 53) + 1, -1,
                                    std::numeric_limits<int64_t>::min()};
  const std::vector<float> elements = {1, 2, 3, 4};
  const absl::Span<const float> words = AsFloats(ids);
  const absl::Span<const char> runs[] = {
      {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(float)},
      {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)}};
  const auto received = ReceivedRows::Of(Rows(4), Payload(runs), /*row_elements=*/1);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(std::vector<int64_t>(received->ids().begin(), received->ids().end()), ids);
  EXPECT_THAT(received->elements(), ElementsAre(1, 2, 3, 4));
}

TEST(ReceivedRows, RefuseAPayloadOfAnotherSize) {
  const std::vector<char> bytes(24);
  const absl::Span<const char> run(bytes);
  EXPECT_TRUE(ReceivedRows::Of(Rows(2), Payload(&run, 1), /*row_elements=*/1).ok());
  for (const int64_t count :
       {int64_t{0}, int64_t{-1}, int64_t{1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(ReceivedRows::Of(Rows(count), Payload(&run, 1), /*row_elements=*/1).status().message(),
                HasSubstr("rows of 12 bytes has a payload of 24"))
        << count;
  }
}

TEST(ReceivedRows, RefuseAFrameBeyondTheLimit) {
  const std::vector<char> bytes(static_cast<size_t>(kMaxRowFrameFloats + 2) * sizeof(float));
  const absl::Span<const char> run(bytes);
  EXPECT_THAT(ReceivedRows::Of(Rows(kMaxRowFrameFloats / 2 + 1), Payload(&run, 1), /*row_elements=*/0)
                  .status()
                  .message(),
              HasSubstr("a frame has 1 to 32768 such rows"));
}

TEST(ReceivedRows, DecodeTheirElements) {
  const std::vector<int64_t> ids = {3, -1, 5};
  const std::vector<uint16_t> halves = {0x3f80, 0x4000, 0x4040, 0};  // 1, 2, 3 and the padding
  const absl::Span<const float> words = AsFloats(ids);
  const std::vector<char> bytes = [&] {
    std::vector<char> joined(words.size() * sizeof(float) + halves.size() * 2);
    std::memcpy(joined.data(), ids.data(), words.size() * sizeof(float));
    std::memcpy(joined.data() + words.size() * sizeof(float), halves.data(), halves.size() * 2);
    return joined;
  }();
  const absl::Span<const char> whole(bytes);
  // Cut within the ids and within an element.
  const absl::Span<const char> runs[] = {whole.first(13), whole.subspan(13, 14), whole.subspan(27)};
  v1::Rows rows = Rows(3);
  rows.set_encoding(v1::ENCODING_BFLOAT16);
  const auto received = ReceivedRows::Of(rows, Payload(runs, 3), /*row_elements=*/1);
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_THAT(received->ids(), ElementsAre(3, -1, 5));
  EXPECT_THAT(received->elements(), ElementsAre(1, 2, 3));

  const absl::Span<const char> elements = whole.subspan(words.size() * sizeof(float));
  const auto known = ReceivedRows::OfKnown(rows, Payload(&elements, 1), /*row_elements=*/1, {7, 8, 9});
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_THAT(known->ids(), ElementsAre(7, 8, 9));
  EXPECT_THAT(known->elements(), ElementsAre(1, 2, 3));
  std::vector<float> copied(3);
  ASSERT_EQ(CheckRowElements(rows, Payload(&elements, 1), 1), absl::OkStatus());
  ASSERT_EQ(CopyRowElements(rows, Payload(&elements, 1), absl::MakeSpan(copied)), absl::OkStatus());
  EXPECT_THAT(copied, ElementsAre(1, 2, 3));

  EXPECT_THAT(CheckRowElements(rows, Payload(&whole, 1), 1).message(),
              HasSubstr("a frame of 3 rows of 2 bytes has a payload of 32"));
  rows.set_encoding(v1::ENCODING_TOPK);
  EXPECT_THAT(CheckRowElements(rows, Payload(&elements, 1), 1).message(),
              HasSubstr("cannot be sent in topk"));
}

TEST(RowForm, LimitsAFrame) {
  for (const bool ids : {true, false}) {
    for (const v1::Encoding encoding : {v1::ENCODING_FLOAT32, v1::ENCODING_FLOAT16}) {
      for (const int64_t elements : {int64_t{1}, int64_t{3}, int64_t{16}, kMaxRowElements}) {
        const RowForm form = {.ids = ids, .elements = elements, .encoding = encoding};
        EXPECT_GE(form.max_rows(), 1);
        EXPECT_LE(form.Floats(form.max_rows()), kMaxRowFrameFloats);
        EXPECT_GT((form.max_rows() + 1) * form.row_bytes(), kMaxRowFrameFloats * 4);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::net

#include "common/net/wire/row_frame.h"

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

}  // namespace
}  // namespace cairn::net

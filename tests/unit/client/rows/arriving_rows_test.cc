#include "client/rows/arriving_rows.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Row r is on server r mod 2.
class Parity final : public net::Partitioner {
 public:
  int ServerOf(int64_t row) const override { return static_cast<int>(row % 2); }
};

// Rows 4, 1, 2, 3 of table 1, of two elements.
class ArrivingRowsTest : public testing::Test {
 protected:
  ArrivingRowsTest() {
    arriving_.Expect({.table = 1,
                      .partition = std::make_shared<const RowPartition>(
                          RowPartition::Create({4, 1, 2, 3}, Parity(), 2).value())},
                     absl::MakeSpan(rows_));
  }
  absl::Status Add(int server, const std::vector<float>& elements, int table = 1, int64_t count = 0) {
    v1::Rows header;
    header.set_table(table);
    header.set_count(count == 0 ? static_cast<int64_t>(elements.size()) / 2 : count);
    const absl::Span<const char> run(reinterpret_cast<const char*>(elements.data()),
                                     elements.size() * sizeof(float));
    return arriving_.Add(server, header, net::Payload(&run, 1));
  }

  std::vector<float> rows_ = std::vector<float>(8, -1);
  ArrivingRows arriving_;
};

TEST_F(ArrivingRowsTest, AreInTheOrderOfTheCaller) {
  EXPECT_EQ(Add(0, {40, 41}), absl::OkStatus());
  EXPECT_EQ(Add(1, {10, 11, 30, 31}), absl::OkStatus());
  EXPECT_FALSE(arriving_.complete(2));
  EXPECT_EQ(Add(0, {20, 21}), absl::OkStatus());
  EXPECT_TRUE(arriving_.complete(2));
  EXPECT_THAT(rows_, ElementsAre(40, 41, 10, 11, 20, 21, 30, 31));
}

TEST_F(ArrivingRowsTest, ArriveAgainAfterARestart) {
  EXPECT_EQ(Add(0, {0, 0}), absl::OkStatus());
  arriving_.Restart(0);
  EXPECT_EQ(Add(0, {40, 41, 20, 21}), absl::OkStatus());
  EXPECT_EQ(Add(1, {10, 11, 30, 31}), absl::OkStatus());
  EXPECT_TRUE(arriving_.complete(2));
  EXPECT_THAT(rows_, ElementsAre(40, 41, 10, 11, 20, 21, 30, 31));
}

TEST_F(ArrivingRowsTest, MustBeExpected) {
  EXPECT_THAT(Add(0, {1, 1, 2, 2, 3, 3}).message(),
              HasSubstr("an answer has 3 rows of table 1, of which 2 were expected"));
  EXPECT_EQ(Add(0, {40, 41, 20, 21}), absl::OkStatus());
  EXPECT_EQ(Add(0, {40, 41}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Add(1, {1, 1}, /*table=*/2).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Add(1, {1, 1}, /*table=*/1, /*count=*/-1).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Add(1, {1, 1, 1}, /*table=*/1, /*count=*/1).code(), absl::StatusCode::kInvalidArgument);
  arriving_.Clear();
  EXPECT_EQ(Add(1, {1, 1}).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(arriving_.complete(2));
  EXPECT_THAT(rows_, ElementsAre(40, 41, -1, -1, 20, 21, -1, -1));
}

}  // namespace
}  // namespace cairn::client

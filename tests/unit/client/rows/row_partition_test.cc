#include "client/rows/row_partition.h"

#include <limits>
#include <memory>
#include <vector>

#include "client/rows/row_tables.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Row r is on server |r|.
class Absolute final : public net::Partitioner {
 public:
  int ServerOf(int64_t row) const override { return static_cast<int>(row < 0 ? -row : row); }
};

TEST(RowPartition, KeepsTheOrderOfEachServersKeys) {
  const std::vector<int64_t> keys = {2, 0, -2, 2};
  const RowPartition partition = RowPartition::Create(keys, Absolute(), 3).value();
  EXPECT_FALSE(partition.whole());
  EXPECT_THAT(partition.keys(), ElementsAre(2, 0, -2, 2));
  EXPECT_THAT(partition.keys_on(0), ElementsAre(0));
  EXPECT_THAT(partition.positions_on(0), ElementsAre(1));
  EXPECT_THAT(partition.keys_on(1), IsEmpty());
  EXPECT_THAT(partition.positions_on(1), IsEmpty());
  EXPECT_THAT(partition.keys_on(2), ElementsAre(2, -2, 2));
  EXPECT_THAT(partition.positions_on(2), ElementsAre(0, 2, 3));
}

TEST(RowPartition, IsWholeOnOneServer) {
  const std::vector<int64_t> keys = {0, 0};
  const RowPartition partition = RowPartition::Create(keys, Absolute(), 1).value();
  EXPECT_TRUE(partition.whole());
  EXPECT_THAT(partition.keys_on(0), ElementsAre(0, 0));
}

TEST(RowPartition, HasEveryKeyOnAServer) {
  for (const int servers : {1, 2}) {
    const std::vector<int64_t> keys = {0, 5};
    EXPECT_THAT(RowPartition::Create(keys, Absolute(), servers).status().message(),
                HasSubstr("no server stores the row 5"));
  }
}

TEST(RowTables, NameTheTableThatCannotBeUsed) {
  v1::Job job;
  v1::Table& table = *job.add_tables();
  table.set_name("items");
  const MakePartitioner make = [](const v1::Table& of,
                                  int) -> absl::StatusOr<std::unique_ptr<net::Partitioner>> {
    if (of.kind() == "no") return absl::InvalidArgumentError("an unknown kind");
    return std::make_unique<Absolute>();
  };
  EXPECT_THAT(RowTables::Create(job, 2, make).status().message(),
              HasSubstr("'items' has rows of 0 elements"));
  EXPECT_TRUE(RowTables::Create(job, 2, nullptr).ok());
  table.set_row_elements(4);
  const auto tables = RowTables::Create(job, 2, make);
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(tables->row_elements(1), 4);
  EXPECT_THAT(tables->Divide(1, {7}).status().message(),
              HasSubstr("table 'items': no server stores the row 7"));
  table.set_kind("no");
  EXPECT_THAT(RowTables::Create(job, 2, make).status().message(),
              HasSubstr("table 'items': an unknown kind"));
}

}  // namespace
}  // namespace cairn::client

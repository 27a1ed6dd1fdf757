// The tables of a trained model in memory.
#include "worker/embedding/trained_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "embedding/keys/key_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::worker {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TableRun Description(int64_t vocabulary_size) {
  TableRun run;
  run.name = "users/embeddings";
  run.vocabulary_size = vocabulary_size;
  run.dim = 2;
  run.distribution = "constant";
  run.center = 0.5;
  return run;
}

// In the order of their buckets.
const std::vector<int64_t> kIds = [] {
  std::vector<int64_t> ids = {7, -1, std::numeric_limits<int64_t>::min()};
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) {
    return std::pair(embedding::BucketOf(a), a) < std::pair(embedding::BucketOf(b), b);
  });
  return ids;
}();

std::vector<float> RowOf(const TrainedTable& table, int64_t id) {
  std::vector<float> row(static_cast<size_t>(table.dim()));
  table.Read(id, absl::MakeSpan(row));
  return row;
}

TEST(TrainedTable, ReadsRowsByIdAndFirstValuesOfOtherIds) {
  const auto table = TrainedTable::Create(Description(0), kIds, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(table.ok()) << table.status();
  for (size_t i = 0; i < kIds.size(); ++i) {
    const float first = 1 + 2 * static_cast<float>(i);
    EXPECT_THAT(RowOf(*table, kIds[i]), ElementsAre(first, first + 1));
  }
  for (const int64_t id : {int64_t{0}, int64_t{8}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(RowOf(*table, id), Each(0.5f)) << id;
  }
}

TEST(TrainedTable, ReadsAllRowsOfAFixedSize) {
  const auto table = TrainedTable::Create(Description(3), {1}, {1, 2});
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<float> all(6);
  table->ReadAll(absl::MakeSpan(all));
  EXPECT_THAT(all, ElementsAre(0.5f, 0.5f, 1, 2, 0.5f, 0.5f));
}

TEST(TrainedTable, HasAllRowsOfAVariable) {
  const auto table = TrainedTable::OfVariable("t", 2, {1, 2, 3, 4});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->description().vocabulary_size, 2);
  EXPECT_THAT(RowOf(*table, 1), ElementsAre(3, 4));
  EXPECT_EQ(TrainedTable::OfVariable("t", 2, {1, 2, 3, NAN}).status().message(),
            "table 't': the row of id 1 has nan");
}

TEST(TrainedTable, RefusesWhatIsNotOfTheTable) {
  const std::vector<int64_t> reversed(kIds.rbegin(), kIds.rend());
  const auto fault = [](int64_t rows, std::vector<int64_t> ids, std::vector<float> values) {
    return std::string(
        TrainedTable::Create(Description(rows), std::move(ids), std::move(values)).status().message());
  };
  EXPECT_THAT(fault(0, reversed, {1, 2, 3, 4, 5, 6}), HasSubstr("table 'users/embeddings': id"));
  EXPECT_THAT(fault(0, kIds, {1, 2, 3, 4}), HasSubstr("4 values are not 3 rows of 2"));
  EXPECT_THAT(fault(7, {7}, {1, 2}), HasSubstr("it has the id 7, outside of its vocabulary of 7"));
  EXPECT_THAT(fault(0, {7}, {1, NAN}), HasSubstr("the row of id 7 has nan"));
}

}  // namespace
}  // namespace cairn::worker

#include "common/net/cluster/partitioner.h"

#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

TEST(RangePartitioner, FindsTheServerOfEveryRow) {
  const auto partitioner = RangePartitioner::Create("v", 7, {{1, 3, 4, 0}, {0, 0, 3, 10}, {1, 4, 7, 20}});
  ASSERT_TRUE(partitioner.ok());
  std::vector<int> servers;
  for (int64_t row = 0; row < 7; ++row) servers.push_back(partitioner->ServerOf(row));
  EXPECT_EQ(servers, (std::vector<int>{0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(partitioner->ranges()[0].offset, 10) << "the ranges are in the order of the rows";
}

TEST(RangePartitioner, ARowOutsideTheVariableIsOnNoServer) {
  const auto partitioner = RangePartitioner::Create("v", 2, {{0, 0, 2, 0}});
  ASSERT_TRUE(partitioner.ok());
  EXPECT_EQ(partitioner->ServerOf(-1), -1);
  EXPECT_EQ(partitioner->ServerOf(2), -1);
}

TEST(RangePartitioner, RefusesRowsThatAreNotOnOneServer) {
  const auto refusal = [](std::vector<RangePartitioner::Range> ranges) {
    return RangePartitioner::Create("v", 4, std::move(ranges)).status();
  };
  EXPECT_EQ(refusal({}), absl::FailedPreconditionError("variable 'v' is on no server"));
  EXPECT_EQ(refusal({{0, 0, 2, 0}, {1, 3, 4, 0}}),
            absl::FailedPreconditionError("variable 'v': row 2 is on no server"));
  EXPECT_EQ(refusal({{0, 0, 3, 0}, {1, 2, 4, 0}}),
            absl::FailedPreconditionError("variable 'v': row 2 is on two servers"));
  EXPECT_EQ(refusal({{0, 0, 3, 0}}), absl::FailedPreconditionError("variable 'v': row 3 is on no server"));
}

}  // namespace
}  // namespace cairn::net

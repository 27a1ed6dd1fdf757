#include "client/data_position.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn::client {
namespace {

v1::DataPosition At(int64_t next, const std::vector<std::pair<int64_t, int64_t>>& open,
                    int64_t repeated = 0) {
  v1::DataPosition position;
  position.set_next(next);
  position.set_repeated(repeated);
  for (const auto& [begin, count] : open) {
    v1::DataPosition::Run& run = *position.add_open();
    run.set_begin(begin);
    run.set_count(count);
  }
  return position;
}

TEST(DataPosition, CountsTheUsedExamples) {
  EXPECT_EQ(NumUsed(At(100, {{10, 5}, {20, 10}})), 85);
  EXPECT_EQ(NumUsed(At(0, {})), 0);
}

struct Torn {
  v1::DataPosition first, other;
  int64_t missed, repeated;
};

TEST(DataPosition, ExamplesOnOneServerOnlyAreMissedOrRepeated) {
  const Torn kCases[] = {
      {At(100, {}), At(100, {}), 0, 0},
      {At(100, {}), At(90, {}), 10, 0},
      {At(90, {}), At(100, {}), 0, 10},
      {At(100, {}), At(100, {{20, 10}}), 10, 0},
      {At(100, {{20, 10}}), At(100, {}), 0, 10},
      {At(100, {{20, 10}}), At(100, {{25, 10}}), 5, 5},
      {At(100, {{20, 10}, {50, 10}}), At(120, {{0, 5}, {50, 60}}, 2), 45, 20 + 2},
  };
  for (const Torn& torn : kCases) {
    v1::DataPosition all = torn.first;
    AddTorn(torn.other, &all);
    EXPECT_EQ(all.missed(), torn.missed) << torn.other.ShortDebugString();
    EXPECT_EQ(all.repeated(), torn.repeated) << torn.other.ShortDebugString();
    EXPECT_EQ(all.next(), torn.first.next());
  }
}

TEST(DataPosition, AtTheEndEachServerIsComparedWithTheAssignedExamples) {
  v1::DataPosition before = At(100, {{30, 10}});
  before.set_missed(7);  // at the snapshot from which the job was resumed
  const v1::DataPosition all = AtTheEnd({before, At(98, {{30, 10}}, 4)});
  EXPECT_EQ(all.missed(), 7 + 10 + 12);
  EXPECT_EQ(all.repeated(), 4);
}

}  // namespace
}  // namespace cairn::client

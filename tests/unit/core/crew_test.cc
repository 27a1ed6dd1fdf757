#include "common/core/crew.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Crew, EachPartIsDoneOnceAndAllBeforeTheCallReturns) {
  Crew crew(3);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<int> done(3);
    crew.Share([&](int part) { ++done[static_cast<size_t>(part)]; });
    EXPECT_EQ(done, std::vector<int>({1, 1, 1}));
  }
}

TEST(Crew, AloneItsCallerDoesAll) {
  Crew crew(1);
  int done = 0;
  crew.Share([&](int part) { done += 1 + part; });
  EXPECT_EQ(done, 1);
}

TEST(Crew, WhoeverComesWhileTheOthersAreBusyDoesAllHimself) {
  Crew crew(2);
  std::atomic<int> done{0};
  {
    std::vector<Thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back("caller", [&] {
        for (int turn = 0; turn < 200; ++turn) crew.Share([&](int) { ++done; });
      });
    }
  }
  EXPECT_EQ(done, 4 * 200 * 2);
}

TEST(Crew, APartMayShareInTurn) {
  Crew crew(2);
  std::atomic<int> done{0};
  crew.Share([&](int) { crew.Share([&](int) { ++done; }); });
  EXPECT_EQ(done, 4);
}

}  // namespace
}  // namespace cairn

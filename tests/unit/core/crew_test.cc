#include "common/core/crew.h"

#include <atomic>
#include <latch>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Crew, EachPartRunsOnceAndAllRunBeforeShareReturns) {
  Crew crew(3);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<int> done(3);
    crew.Share([&](int part) { ++done[static_cast<size_t>(part)]; });
    EXPECT_EQ(done, std::vector<int>({1, 1, 1}));
  }
}

TEST(Crew, InAPoolOfOneTheCallerRunsEverything) {
  Crew crew(1);
  int done = 0;
  crew.Share([&](int part) { done += 1 + part; });
  EXPECT_EQ(done, 1);
}

TEST(Crew, ACallerThatFindsThePoolBusyRunsEverythingItself) {
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

TEST(Crew, APartMayCallShareItself) {
  Crew crew(2);
  std::atomic<int> done{0};
  crew.Share([&](int) { crew.Share([&](int) { ++done; }); });
  EXPECT_EQ(done, 4);
}

TEST(Crew, EachThreadMayHaveOneRunningAndOneWaitingTask) {
  std::latch begun(1), may_end(1);
  std::atomic<int> done{0};
  {
    Crew crew(2);
    EXPECT_TRUE(crew.Take([&] {
      begun.count_down();
      may_end.wait();
      ++done;
    }));
    begun.wait();
    EXPECT_TRUE(crew.Take([&] { ++done; })) << "queued until the first task has ended";
    EXPECT_FALSE(crew.Take([&] { done += 100; })) << "one task runs and one waits";
    std::vector<int> parts(2);
    crew.Share([&](int part) { ++parts[static_cast<size_t>(part)]; });
    EXPECT_EQ(parts, std::vector<int>({1, 1})) << "run by the caller, which does not wait for the task";
    EXPECT_EQ(done, 0);
    may_end.count_down();
  }
  EXPECT_EQ(done, 2) << "the destructor waits for the tasks";
}

TEST(Crew, APoolOfOneTakesNoTask) {
  Crew crew(1);
  EXPECT_FALSE(crew.Take([] { FAIL(); }));
}

TEST(Crew, TasksAndPartsEachRunOnce) {
  std::atomic<int> parts{0}, tasks{0};
  int taken = 0;
  {
    Crew crew(3);
    for (int turn = 0; turn < 500; ++turn) {
      taken += crew.Take([&] { ++tasks; });
      crew.Share([&](int) { ++parts; });
      taken += crew.Take([&] { ++tasks; });
    }
  }
  EXPECT_EQ(parts, 3 * 500);
  EXPECT_EQ(tasks, taken);
}

}  // namespace
}  // namespace cairn

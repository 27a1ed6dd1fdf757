#include "common/system/thread_pool.h"

#include <atomic>
#include <latch>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(ThreadPool, EachPartRunsOnceBeforeParallelRunReturns) {
  ThreadPool thread_pool(3);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<int> done(3);
    thread_pool.ParallelRun([&](int part) { ++done[static_cast<size_t>(part)]; });
    EXPECT_EQ(done, std::vector<int>({1, 1, 1}));
  }
}

TEST(ThreadPool, InAPoolOfOneTheCallerRunsEverything) {
  ThreadPool thread_pool(1);
  int done = 0;
  thread_pool.ParallelRun([&](int part) { done += 1 + part; });
  EXPECT_EQ(done, 1);
}

TEST(ThreadPool, ACallerThatFindsThePoolBusyRunsEverythingItself) {
  ThreadPool thread_pool(2);
  std::atomic<int> done{0};
  {
    std::vector<Thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back("caller", [&] {
        for (int turn = 0; turn < 200; ++turn) thread_pool.ParallelRun([&](int) { ++done; });
      });
    }
  }
  EXPECT_EQ(done, 4 * 200 * 2);
}

TEST(ThreadPool, APartMayCallParallelRun) {
  ThreadPool thread_pool(2);
  std::atomic<int> done{0};
  thread_pool.ParallelRun([&](int) { thread_pool.ParallelRun([&](int) { ++done; }); });
  EXPECT_EQ(done, 4);
}

TEST(ThreadPool, EachThreadMayHaveOneRunningAndOneWaitingTask) {
  std::latch begun(1), may_end(1);
  std::atomic<int> done{0};
  {
    ThreadPool thread_pool(2);
    EXPECT_TRUE(thread_pool.TrySchedule([&] {
      begun.count_down();
      may_end.wait();
      ++done;
    }));
    begun.wait();
    EXPECT_TRUE(thread_pool.TrySchedule([&] { ++done; })) << "queued until the first task has ended";
    EXPECT_FALSE(thread_pool.TrySchedule([&] { done += 100; })) << "one task runs and one waits";
    std::vector<int> parts(2);
    thread_pool.ParallelRun([&](int part) { ++parts[static_cast<size_t>(part)]; });
    EXPECT_EQ(parts, std::vector<int>({1, 1})) << "run by the caller, which does not wait for the task";
    EXPECT_EQ(done, 0);
    may_end.count_down();
  }
  EXPECT_EQ(done, 2) << "the destructor waits for the tasks";
}

TEST(ThreadPool, APoolOfOneTakesNoTask) {
  ThreadPool thread_pool(1);
  EXPECT_FALSE(thread_pool.TrySchedule([] { FAIL(); }));
}

TEST(ThreadPool, TasksAndPartsEachRunOnce) {
  std::atomic<int> parts{0}, tasks{0};
  int taken = 0;
  {
    ThreadPool thread_pool(3);
    for (int turn = 0; turn < 500; ++turn) {
      taken += thread_pool.TrySchedule([&] { ++tasks; });
      thread_pool.ParallelRun([&](int) { ++parts; });
      taken += thread_pool.TrySchedule([&] { ++tasks; });
    }
  }
  EXPECT_EQ(parts, 3 * 500);
  EXPECT_EQ(tasks, taken);
}

}  // namespace
}  // namespace cairn

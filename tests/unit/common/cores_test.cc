#include "common/system/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

namespace cairn {
namespace {

int AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST(StayOnCores, BindsAThreadAndItsChildrenToThatManyCores) {
  const int before = AllowedCores();
  int own = 0, of_its_thread = 0, unlimited = 0;
  std::thread([&] {
    StayOnCores(7, 1);
    own = AllowedCores();
    std::thread([&] { of_its_thread = AllowedCores(); }).join();
  }).join();
  std::thread([&] {
    StayOnCores(0, before);
    unlimited = AllowedCores();
  }).join();
  EXPECT_EQ(own, 1);
  EXPECT_EQ(of_its_thread, 1);
  EXPECT_EQ(unlimited, before);
  EXPECT_EQ(AllowedCores(), before);
}

TEST(WarnOfThreads, NamesBothNumbersIfThereAreMoreThreadsThanCores) {
  EXPECT_EQ(WarnOfThreads(0), "");
  EXPECT_EQ(WarnOfThreads(UsableCores()), "");
  EXPECT_EQ(WarnOfThreads(UsableCores() + 1)
                .find("--threads " + std::to_string(UsableCores() + 1) + ": this process may use " +
                      std::to_string(UsableCores())),
            0u);
}

}  // namespace
}  // namespace cairn

#include "common/system/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/process_start.h"
#include "common/system/thread.h"
#include "tests/support/effort.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// Lowers the soft limit of open files during its lifetime.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower = {.rlim_cur = files, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST(Limits, TheSoftLimitOfOpenFilesIsRaisedAndReported) {
  const SoftLimit low(100);
  EXPECT_EQ(DescriptorLimit(), 100);
  const std::string said = RaiseDescriptorLimit();
  EXPECT_THAT(said, HasSubstr("limit of open files raised from 100 to "));
  EXPECT_EQ(DescriptorLimit(), HighestDescriptorLimit());
  EXPECT_EQ(RaiseDescriptorLimit(), "") << "the limit is at its highest already";
}

TEST(Limits, TooFewFilesAreRefusedWithTheLimitsName) {
  const SoftLimit low(50);
  EXPECT_EQ(CheckLimits(/*files=*/50, /*threads=*/2), absl::OkStatus());
  const absl::Status status = CheckLimits(/*files=*/51, /*threads=*/0);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("at most 50 files may be open (ulimit -n), at least 51"));
}

void LeaveNoAddressSpace() {
  const rlimit none = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
  setrlimit(RLIMIT_AS, &none);
}

TEST(LimitsDeathTest, AFailureToStartAThreadIsAStatusOrEndsTheProgramWithOneLine) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end the process when they get no memory";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    LeaveNoAddressSpace();
    const auto thread = Thread::Start("worker", [] {});
    if (!absl::IsResourceExhausted(thread.status())) _exit(3);
    const Thread needed("needed", [] {});
    _exit(4);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(1), "cannot start the thread 'needed': .*ulimit -v");
}

void LimitAddressSpace(int64_t bytes) {
  const rlimit limit = {.rlim_cur = static_cast<rlim_t>(bytes), .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(LimitsDeathTest, TooLittleAddressSpaceIsRefusedNamingTheNeed) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int64_t kLimit = int64_t{4} << 30, kTooMuch = int64_t{5} << 30;
  EXPECT_EQ(CheckAddressSpace(/*threads=*/1, kTooMuch), absl::OkStatus()) << "there is no limit";
  const auto check = [&] {
    LimitAddressSpace(kLimit);
    const bool room = CheckAddressSpace(/*threads=*/1, /*bytes=*/1 << 20).ok();
    std::fputs(std::string(CheckAddressSpace(/*threads=*/1, kTooMuch).message()).c_str(), stderr);
    _exit(room ? 0 : 3);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0),
              "address space is limited to 4 GiB, at least 5.* are needed.*ulimit -v. from 4194304 to ");
}

TEST(LimitsDeathTest, AnAbortUnderALimitOfAddressSpaceEndsWithOneLine) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    LimitAddressSpace(int64_t{4} << 30);
    char* argv[] = {nullptr};
    PrepareProcess(argv);
    std::abort();
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(1), "aborted, probably for lack of address space; .*ulimit -v");
}

}  // namespace
}  // namespace cairn

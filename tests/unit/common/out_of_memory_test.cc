#include "common/memory/out_of_memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/memory/aligned_buffer.h"
#include "tests/support/effort.h"

namespace cairn {
namespace {

constexpr int64_t kTooMany = int64_t{1} << 50;  // floats

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  return std::string(status.message());
}

TEST(OutOfMemory, TheErrorOfATooLargeBufferNamesItsSize) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end the process when they get no memory";
  const absl::Status status = CatchOutOfMemory("a batch", [] {
    const AlignedBuffer buffer(kTooMany);
    return absl::OkStatus();
  });
  EXPECT_EQ(MessageOf(status), "a batch: no memory for 4.19e+06 GiB");
}

TEST(OutOfMemory, SizesThatOverflowAreTooLarge) {
  for (const int64_t count : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THROW(AlignedBuffer buffer(count), OutOfMemory);
    EXPECT_THROW(FloatVector(count, "values"), OutOfMemory);
  }
}

TEST(OutOfMemory, TheErrorOfAVectorNamesItsPurpose) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end the process when they get no memory";
  const absl::StatusOr<int> result = CatchOutOfMemory("model.json", []() -> absl::StatusOr<int> {
    return static_cast<int>(FloatVector(kTooMany, "the variables").size());
  });
  EXPECT_EQ(MessageOf(result.status()), "model.json: the variables: no memory for 4.19e+06 GiB");
}

TEST(OutOfMemory, ContainersAreCaughtToo) {
  EXPECT_EQ(MessageOf(CatchOutOfMemory("names",
                                       [] {
                                         std::string().reserve(std::string().max_size());
                                         return absl::OkStatus();
                                       })),
            "names: no memory");
  EXPECT_NE(MessageOf(CatchOutOfMemory("names",
                                       [] {
                                         std::vector<float>().reserve(std::numeric_limits<size_t>::max());
                                         return absl::OkStatus();
                                       }))
                .find("no memory can hold that much"),
            std::string::npos);
}

TEST(OutOfMemory, AResultThatFitsIsReturned) {
  EXPECT_EQ(
      *CatchOutOfMemory("values", []() -> absl::StatusOr<size_t> { return FloatVector(3, "v").size(); }), 3u);
}

TEST(OutOfMemory, AnUncaughtErrorOnAThreadEndsTheProgramWithCodeOne) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end the process when they get no memory";
  EXPECT_EXIT(
      {
        ReportOutOfMemory("cairn-test");
        std::thread([] { AlignedBuffer buffer(kTooMany); }).join();
      },
      testing::ExitedWithCode(1), "cairn-test: no memory for 4.19e\\+06 GiB");
}

}  // namespace
}  // namespace cairn

#include "worker/export/in_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <string>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RunInChild, ReturnsTheValuesThatTheWorkWrote) {
  const auto values = RunInChild(2, {}, [](absl::Span<float> to) {
    to[0] = 1;
    to[1] = 2;
    return absl::OkStatus();
  });
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(1, 2));
}

TEST(RunInChild, DoesNotChangeThisProcess) {
  int here = 0;
  const auto values = RunInChild(0, {}, [&](absl::Span<float>) {
    here = 1;
    return absl::OkStatus();
  });
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(here, 0);
}

TEST(RunInChild, ReturnsTheWorksErrorOfAnyLength) {
  const std::string text(100'000, 'x');
  const auto values = RunInChild(0, {}, [&](absl::Span<float>) { return absl::NotFoundError(text); });
  EXPECT_EQ(values.status(), absl::NotFoundError(text));
}

TEST(RunInChild, CrashIsAnError) {
  const auto values = RunInChild(0, {}, [](absl::Span<float>) -> absl::Status {
    std::raise(SIGSEGV);
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsInvalidArgument(values.status()));
  EXPECT_THAT(values.status().message(), HasSubstr("crash"));
}

TEST(RunInChild, EndlessWorkIsAnError) {
  const auto values = RunInChild(0, {.seconds = 1}, [](absl::Span<float>) -> absl::Status {
    for (volatile unsigned turns = 0;;) turns = turns + 1;
  });
  EXPECT_TRUE(absl::IsInvalidArgument(values.status()));
  EXPECT_THAT(values.status().message(), HasSubstr("does not end within 1 s"));
}

// The child's report pipe, found among its open descriptors. A library that has overwritten its own memory
// might write to it.
class ForeignPipe {
 public:
  ForeignPipe() : before_(Pipes()) {}
  int fd() const {
    for (const int fd : Pipes()) {
      if (before_.count(fd) == 0) return fd;
    }
    return -1;
  }

 private:
  static std::set<int> Pipes() {
    std::set<int> pipes;
    for (int fd = 0; fd < 1024; ++fd) {
      struct stat what;
      if (fstat(fd, &what) == 0 && S_ISFIFO(what.st_mode)) pipes.insert(fd);
    }
    return pipes;
  }
  const std::set<int> before_;
};

TEST(RunInChild, ChildThatClosesThePipeAndSleepsIsAnError) {
  const ForeignPipe pipe;
  const auto values = RunInChild(0, {.seconds = 1}, [&](absl::Span<float>) -> absl::Status {
    if (close(pipe.fd()) != 0) _exit(0);
    for (;;) pause();
  });
  EXPECT_TRUE(absl::IsInvalidArgument(values.status()));
  EXPECT_THAT(values.status().message(), HasSubstr("does not end within 1 s"));
}

TEST(RunInChild, MalformedReportIsAnError) {
  for (const std::string report :
       {"0 fine", "17 no such code", "-1 either", "text", " ", "99999999999999 x"}) {
    const ForeignPipe pipe;
    const auto values = RunInChild(0, {}, [&](absl::Span<float>) -> absl::Status {
      _exit(write(pipe.fd(), report.data(), report.size()) < 0 ? 1 : 0);
    });
    EXPECT_EQ(values.status(), absl::InvalidArgumentError("damaged: reading it gives no valid result"))
        << report;
  }
}

TEST(RunInChild, MemoryIsLimited) {
  const auto values = RunInChild(0, {.memory_bytes = 64 << 20}, [](absl::Span<float>) {
    void* volatile much = std::malloc(size_t{1} << 30);
    const bool got = much != nullptr;
    std::free(much);
    return got ? absl::OkStatus() : absl::ResourceExhaustedError("no more");
  });
  EXPECT_FALSE(values.ok());  // an error, or a crash with a sanitizer's allocator
}

}  // namespace
}  // namespace cairn::worker

#include "common/core/status.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(Annotate, PutsTheContextInFrontAndKeepsTheCode) {
  const absl::Status status = Annotate(absl::NotFoundError("no such file"), "model.json");
  EXPECT_EQ(status, absl::NotFoundError("model.json: no such file"));
}

TEST(Annotate, LeavesAnOkStatusUnchanged) {
  EXPECT_TRUE(Annotate(absl::OkStatus(), "anything").ok());
}

TEST(ExitCodeOf, DistinguishesRetryableIncompatibleAndPermanentErrors) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), ExitCode::kRetryable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), ExitCode::kRetryable);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), ExitCode::kIncompatible);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), ExitCode::kFailure);
}

}  // namespace
}  // namespace cairn

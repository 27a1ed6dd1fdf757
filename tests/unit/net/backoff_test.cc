#include "common/net/grpc/backoff.h"

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, StepsDoubleUpToTheMaximumAndAreJitteredByHalf) {
  Backoff backoff(/*seed=*/1, milliseconds(100), milliseconds(500));
  for (int step : {100, 200, 400, 500, 500}) {
    const milliseconds wait = backoff.Next();
    EXPECT_GE(wait, milliseconds(step / 2));
    EXPECT_LE(wait, milliseconds(step));
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), milliseconds(100));
}

TEST(Backoff, DifferentSeedsGiveDifferentDelays) {
  Backoff one(1), other(2);
  EXPECT_NE(one.Next(), other.Next());
}

}  // namespace
}  // namespace cairn::net

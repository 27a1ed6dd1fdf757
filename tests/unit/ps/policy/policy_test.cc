#include "ps/policy/policy.h"

#include <string>

#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

std::string ErrorOf(const PolicyConfig& config) {
  const auto policy = MakePolicy(config);
  return policy.ok() ? "accepted" : std::string(policy.status().message());
}

TEST(MakePolicy, AnUnknownModeListsTheSupportedOnes) {
  EXPECT_EQ(ErrorOf({.mode = "chaos"}), "unknown update mode 'chaos'; supported: sync, async, ssp");
}

TEST(MakePolicy, AFieldOutOfRangeIsNamed) {
  EXPECT_EQ(ErrorOf({.mode = "sync", .expected_workers = 0}), "expected_workers is 0, must be at least 1");
  EXPECT_EQ(ErrorOf({.mode = "sync", .replicas_to_aggregate = -1}),
            "replicas_to_aggregate is -1, must be at least 0");
  EXPECT_EQ(ErrorOf({.mode = "async", .max_staleness = -1}), "max_staleness is -1, must be at least 0");
  EXPECT_EQ(ErrorOf({.mode = "async", .initial_version = -1}), "initial_version is -1, must be at least 0");
  EXPECT_EQ(ErrorOf({.mode = "sync", .final_version = -2}), "final_version is -2, must be at least 0");
  EXPECT_EQ(ErrorOf({.mode = "sync"}), "accepted");
  EXPECT_EQ(ErrorOf({.mode = "ssp"}), "max_staleness is missing: how far ahead a worker may go");
}

TEST(UpdateCounters, TheLastHistogramEntryCountsEverythingBeyond) {
  UpdateCounters counters;
  counters.Add(Apply{.version = 1001, .contributors = {{.base_version = 0}}, .staleness = 1000});
  counters.Add(Apply{.version = 16, .contributors = {{.base_version = 0}}, .staleness = 15});
  EXPECT_EQ(counters.staleness_histogram.back(), 2);
  EXPECT_EQ(counters.staleness_max, 1000);
}

}  // namespace
}  // namespace cairn::ps

#include "ps/follow.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

LogEntry ThroughTheWire(const LogEntry& entry) {
  v1::Decision decision;
  EXPECT_TRUE(decision.ParseFromString(ToProto(entry).SerializeAsString()));
  return FromProto(decision).value();
}

TEST(FollowProto, AnApplyKeepsItsContributorsAndTheirOrder) {
  const Apply apply = {
      .version = 9,
      .contributors = {
          {.key = {.worker = 2, .incarnation = 7, .step = 11}, .base_version = 8, .examples = 64},
          {.key = {.worker = 0, .incarnation = uint64_t{1} << 63, .step = 3},
           .base_version = 8,
           .examples = 0}}};
  const LogEntry back = ThroughTheWire({.index = 5, .what = apply});
  EXPECT_EQ(back.index, 5);
  EXPECT_EQ(std::get<Apply>(back.what), apply);
}

TEST(FollowProto, ARefusalKeepsWhatItsWorkerIsTold) {
  using Reason = Refuse::Reason;
  for (Reason reason : {Reason::kStale, Reason::kAhead, Reason::kNotAMember, Reason::kOldIncarnation,
                        Reason::kSecondInRound, Reason::kFinished}) {
    const Refuse refuse = {
        .key = {.worker = 1, .incarnation = 2, .step = 3}, .reason = reason, .staleness = 4};
    const auto back = std::get<Refuse>(ThroughTheWire({.index = 1, .what = refuse}).what);
    EXPECT_EQ(back.key, refuse.key);
    EXPECT_EQ(back.staleness, 4);
    EXPECT_EQ(OutcomeOf(back.reason), OutcomeOf(reason));
  }
}

TEST(FollowProto, AMarkKeepsItsToken) {
  EXPECT_EQ(std::get<Mark>(ThroughTheWire({.index = 2, .what = Mark{"worker/1#4.7"}}).what).token,
            "worker/1#4.7");
}

TEST(FollowProto, WhatIsNoDecisionIsRefused) {
  v1::Decision decision;
  decision.set_index(3);
  EXPECT_EQ(FromProto(decision).status().code(), absl::StatusCode::kInvalidArgument);
  decision.mutable_apply()->set_version(1);
  EXPECT_EQ(FromProto(decision).status().code(), absl::StatusCode::kInvalidArgument)
      << "an update of no gradient";
}

}  // namespace
}  // namespace cairn::ps

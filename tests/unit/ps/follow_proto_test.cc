#include "ps/log/follow_proto.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/rpc/received_decision.h"
#include "ps/shard/shard.h"

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
  const LogEntry back = ThroughTheWire({.index = 5, .action = apply});
  EXPECT_EQ(back.index, 5);
  EXPECT_EQ(std::get<Apply>(back.action), apply);
}

TEST(FollowProto, ADeferredApplyAndItsReleaseSurviveTheRoundTrip) {
  const Gradient gradient = {
      .key = {.worker = 2, .incarnation = 7, .step = 11}, .base_version = 8, .examples = 64};
  const Apply apply = {.version = 9, .contributors = {gradient}, .deferred = true};
  EXPECT_EQ(std::get<Apply>(ThroughTheWire({.index = 5, .action = apply}).action), apply);
  EXPECT_EQ(std::get<Release>(ThroughTheWire({.index = 6, .action = Release{gradient.key}}).action).key,
            gradient.key);
}

TEST(FollowProto, ARefusalKeepsItsOutcomeAndStaleness) {
  using Reason = Refuse::Reason;
  for (Reason reason : {Reason::kStale, Reason::kAhead, Reason::kNotAMember, Reason::kOldIncarnation,
                        Reason::kSecondInRound, Reason::kFinished}) {
    const Refuse refuse = {
        .key = {.worker = 1, .incarnation = 2, .step = 3}, .reason = reason, .staleness = 4};
    const auto back = std::get<Refuse>(ThroughTheWire({.index = 1, .action = refuse}).action);
    EXPECT_EQ(back.key, refuse.key);
    EXPECT_EQ(back.staleness, 4);
    EXPECT_EQ(OutcomeOf(back.reason), OutcomeOf(reason));
  }
}

TEST(FollowProto, AMarkerKeepsItsToken) {
  EXPECT_EQ(std::get<Marker>(ThroughTheWire({.index = 2, .action = Marker{"worker/1#4.7"}}).action).token,
            "worker/1#4.7");
}

TEST(FollowProto, AMeasureKeepsItsGradientsNormsAndTotals) {
  for (optim::Norms norms : {optim::Norms::kGradient, optim::Norms::kLayer}) {
    const Measure measure = {.version = 4,
                             .contributors = {{.key = {.worker = 1, .incarnation = 2, .step = 3},
                                               .base_version = 3,
                                               .examples = 8}},
                             .norms = norms};
    const optim::VariableSquares known = {{"a", {.gradient = 0.1, .values = 0, .direction = 1e-300}},
                                          {"b", {}}};
    const LogEntry back = ThroughTheWire({.index = 6, .action = measure, .known = known});
    EXPECT_EQ(std::get<Measure>(back.action).version, 4);
    EXPECT_EQ(std::get<Measure>(back.action).contributors, measure.contributors);
    EXPECT_EQ(std::get<Measure>(back.action).norms, norms);
    EXPECT_EQ(back.known, known);
  }
}

TEST(FollowProto, SumsKeepTheirSlicesAndBandsToTheBit) {
  const Sums sums = {.index = 9,
                     .slices = {{"a", 3, {{.gradient = 0.1}, {.gradient = 1.0 / 3}}},
                                {"b", 0, {{.values = 2, .direction = 5e-324}}},
                                {"no rows", 0, {}}}};
  v1::Sums wire;
  ASSERT_TRUE(wire.ParseFromString(ToProto(sums).SerializeAsString()));
  const Sums back = FromProto(wire).value();
  EXPECT_EQ(back.index, 9);
  ASSERT_EQ(back.slices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back.slices[i].variable, sums.slices[i].variable);
    EXPECT_EQ(back.slices[i].row_begin, sums.slices[i].row_begin);
    EXPECT_EQ(back.slices[i].bands, sums.slices[i].bands);
  }
}

TEST(FollowProto, AConfigChangeKeepsSetAndUnsetFields) {
  const auto rate = std::get<ConfigChange>(
      ThroughTheWire({.index = 2, .action = ConfigChange{.learning_rate = 0.0f}}).action);
  EXPECT_EQ(rate.learning_rate, 0.0f);
  EXPECT_FALSE(rate.end);
  const auto end =
      std::get<ConfigChange>(ThroughTheWire({.index = 3, .action = ConfigChange{.end = true}}).action);
  EXPECT_EQ(end.learning_rate, std::nullopt);
  EXPECT_TRUE(end.end);
}

TEST(FollowProto, AStagedPushKeepsItsSettingsOfGroups) {
  const Gradient gradient = {.key = {.worker = 0, .incarnation = 2, .step = 3},
                             .groups = {{.learning_rate = 0.25f}, {.untouched = true}, {}}};
  EXPECT_EQ(FromProto(ToProto(gradient)).value(), gradient);
}

TEST(FollowProto, ConsecutiveGroupsWithEqualSettingsShareAnEntry) {
  const optim::GroupSettings decay = {.hyperparameters = {{"weight_decay", 0.5}}};
  Gradient gradient = {.key = {.worker = 0, .incarnation = 2, .step = 3},
                       .groups = std::vector<optim::GroupSettings>(kMaxGroups)};
  gradient.groups.back() = decay;
  const v1::StagedGradient message = ToProto(gradient);
  ASSERT_EQ(message.groups_size(), 2);
  EXPECT_EQ(message.groups(0).count(), static_cast<uint32_t>(kMaxGroups - 1));
  EXPECT_LT(message.ByteSizeLong(), 100u);
  EXPECT_EQ(FromProto(message).value(), gradient);
}

TEST(FollowProto, AnEntryForTooManyGroupsIsCut) {
  google::protobuf::RepeatedPtrField<v1::GroupSettings> groups;
  groups.Add()->set_count(4'000'000'000);
  EXPECT_EQ(FromProto(groups).size(), static_cast<size_t>(kMaxGroups) + 1);
}

TEST(FollowProto, CountsOfSkippedUpdatesAreKept) {
  const optim::SkippedUpdates skipped = {.empty = 2, .untouched = {7, 7, 0, 5}};
  EXPECT_EQ(ToProto(skipped).untouched_size(), 6) << "three runs";
  EXPECT_EQ(FromProto(ToProto(skipped)).value(), skipped);
}

TEST(FollowProto, InvalidCountsOfSkippedUpdatesAreRefused) {
  v1::SkippedUpdates negative, many;
  negative.set_empty(-1);
  EXPECT_THAT(std::string(FromProto(negative).status().message()),
              testing::HasSubstr("number of empty updates cannot be -1"));
  many.add_untouched(1);
  many.add_untouched(int64_t{1} << 40);
  EXPECT_THAT(std::string(FromProto(many).status().message()), testing::HasSubstr("groups are invalid"));
}

TEST(FollowProto, OnlyTheChiefMaySendValidSettingsOfGroups) {
  const auto message = [](int worker, float rate) {
    return std::string(FromProto(ToProto(Gradient{.key = {.worker = worker, .incarnation = 2, .step = 3},
                                                  .groups = {{}, {.learning_rate = rate}}}))
                           .status()
                           .message());
  };
  EXPECT_EQ(message(1, 1),
            "push of worker 1 (incarnation 2), step 3: only the chief may set groups of variables");
  EXPECT_EQ(message(0, -1),
            "push of worker 0 (incarnation 2), step 3: group 1: a learning rate of -1 is invalid");
  EXPECT_EQ(message(0, std::numeric_limits<float>::infinity()),
            "push of worker 0 (incarnation 2), step 3: group 1: a learning rate of inf is invalid");
}

TEST(FollowProto, InvalidDecisionsAreRefused) {
  v1::Decision decision;
  decision.set_index(3);
  EXPECT_EQ(FromProto(decision).status().code(), absl::StatusCode::kInvalidArgument);
  decision.mutable_apply()->set_version(1);
  EXPECT_EQ(FromProto(decision).status().code(), absl::StatusCode::kInvalidArgument)
      << "an update without gradients";
  decision.mutable_measure()->add_contributors();
  EXPECT_EQ(FromProto(decision).status().code(), absl::StatusCode::kInvalidArgument) << "of no known norms";
}

// The sequencer counts with these numbers, and a follower's shard uses them as weights.
TEST(FollowProto, AnImpossibleGradientIsRefusedWithItsNumbers) {
  const v1::StagedGradient good =
      ToProto({.key = {.worker = 1, .incarnation = 2, .step = 3}, .base_version = 4, .examples = 5});
  EXPECT_TRUE(FromProto(good).ok());
  using Change = void (*)(v1::StagedGradient&);
  const Change changes[] = {
      [](v1::StagedGradient& gradient) { gradient.mutable_key()->set_worker(-1); },
      [](v1::StagedGradient& gradient) { gradient.mutable_key()->set_incarnation(0); },
      [](v1::StagedGradient& gradient) { gradient.mutable_key()->set_step(0); },
      [](v1::StagedGradient& gradient) { gradient.set_base_version(std::numeric_limits<int64_t>::min()); },
      [](v1::StagedGradient& gradient) { gradient.set_examples(-1); },
      [](v1::StagedGradient& gradient) { gradient.set_examples(int64_t{1} << 32); },
  };
  int row = 0;
  for (const Change change : changes) {
    v1::StagedGradient bad = good;
    change(bad);
    EXPECT_EQ(FromProto(bad).status().code(), absl::StatusCode::kInvalidArgument) << "row " << row;
    v1::Decision decision;
    decision.set_index(7);
    decision.mutable_apply()->set_version(5);
    *decision.mutable_apply()->add_contributors() = bad;
    EXPECT_THAT(std::string(FromProto(decision).status().message()),
                testing::StartsWith("decision 7: invalid gradient: worker "))
        << "row " << row++;
  }
}

TEST(FollowProto, AnUpdateToAnImpossibleVersionIsRefused) {
  v1::Decision decision;
  decision.set_index(7);
  *decision.mutable_apply()->add_contributors() =
      ToProto({.key = {.worker = 1, .incarnation = 2, .step = 3}, .base_version = 4, .examples = 5});
  decision.mutable_apply()->set_version(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(std::string(FromProto(decision).status().message()),
            "decision 7: an update cannot lead to version -9223372036854775808");
}

// Invalid decisions, as a faulty or malicious leader may send them.
class StrangeDecision : public testing::Test {
 protected:
  StrangeDecision() { decision_.set_index(7); }
  static v1::StagedGradient Of(int worker) {
    return ToProto(
        {.key = {.worker = worker, .incarnation = 2, .step = 3}, .base_version = 4, .examples = 5});
  }
  std::string Refusal() const { return std::string(FromProto(decision_).status().message()); }

  v1::Decision decision_;
};

TEST_F(StrangeDecision, AnUpdateOfTwoGradientsOfOneWorkerIsRefused) {
  decision_.mutable_apply()->set_version(5);
  for (int worker : {1, 2, 1}) *decision_.mutable_apply()->add_contributors() = Of(worker);
  EXPECT_EQ(Refusal(), "decision 7: an update to version 5 cannot take two gradients of one worker");
}

TEST_F(StrangeDecision, AGradientFromTheUpdatesOwnVersionIsRefused) {
  decision_.mutable_measure()->set_version(4);
  decision_.mutable_measure()->set_norms(v1::NORMS_GRADIENT);
  *decision_.mutable_measure()->add_contributors() = Of(1);
  EXPECT_EQ(Refusal(),
            "decision 7: an update to version 4 cannot take a gradient from version 4 of worker 1");
}

TEST_F(StrangeDecision, ARefusalOrReleaseOfAnImpossiblePushIsRefused) {
  decision_.mutable_refuse()->set_outcome(v1::OUTCOME_STALE);
  *decision_.mutable_refuse()->mutable_key() = Of(-1).key();
  EXPECT_THAT(Refusal(), testing::StartsWith("decision 7: invalid gradient: worker -1 "));
  *decision_.mutable_release() = Of(-1).key();
  EXPECT_THAT(Refusal(), testing::StartsWith("decision 7: invalid gradient: worker -1 "));
}

TEST_F(StrangeDecision, ARefusalWithAnotherOutcomeIsRefused) {
  *decision_.mutable_refuse()->mutable_key() = Of(1).key();
  decision_.mutable_refuse()->set_outcome(v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(Refusal(), "decision 7: a refusal cannot have outcome 1");
  decision_.mutable_refuse()->set_outcome(v1::OUTCOME_STALE);
  decision_.mutable_refuse()->set_staleness(-3);
  EXPECT_EQ(Refusal(), "decision 7: a refused gradient cannot be -3 versions old");
}

TEST_F(StrangeDecision, AMarkerWithALongNameIsRefused) {
  decision_.mutable_marker()->set_token(std::string(257, 'x'));
  EXPECT_EQ(Refusal(), "decision 7: a marker's name cannot have 257 bytes, at most 256");
}

TEST_F(StrangeDecision, AnInvalidLearningRateIsRefused) {
  decision_.mutable_config_change()->set_learning_rate(-1);
  EXPECT_EQ(Refusal(), "decision 7: a learning rate of -1 is invalid");
}

TEST_F(StrangeDecision, ASumOfSquaresBelowZeroIsRefused) {
  decision_.mutable_marker()->set_token("m");
  v1::SliceSquares& known = *decision_.add_known();
  known.set_variable("a");
  known.add_values(-2);
  EXPECT_EQ(Refusal(), "decision 7: a sum of squares cannot be -2: variable 'a'");
  v1::Sums sums;
  *sums.add_slices() = known;
  EXPECT_EQ(FromProto(sums).status(),
            absl::InvalidArgumentError("a sum of squares cannot be -2: variable 'a'"));
}

TEST_F(StrangeDecision, FailsTheFollowersJobAndNamesTheLeader) {
  Shard shard(
      {.slices = {}, .optimizer = optim::MakeOptimizer({.name = "SGD", .hyperparameters = {}}).value()});
  decision_.set_index(1);
  EXPECT_EQ(Follow(decision_, shard), absl::OkStatus());
  EXPECT_EQ(shard.failure(),
            absl::InternalError("ps/0 made an invalid decision: decision 1: unknown kind of log entry"));
}

TEST_F(StrangeDecision, OutOfOrderEndsOnlyTheStream) {
  Shard shard(
      {.slices = {}, .optimizer = optim::MakeOptimizer({.name = "SGD", .hyperparameters = {}}).value()});
  decision_.mutable_marker()->set_token("m");
  EXPECT_EQ(Follow(decision_, shard).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(shard.next_index(), 1);
  EXPECT_EQ(shard.failure(), absl::OkStatus());
}

}  // namespace
}  // namespace cairn::ps

// A shard whose updates need norms: what it measures, and which entries must come in between.
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/shard/shard.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A shard of two elements under SGD at rate 1, with gradients clipped to a norm of 5. The test acts as
// its sequencer.
class ClippingShardTest : public testing::Test {
 protected:
  ClippingShardTest()
      : shard_({.slices = Vectors({{"a", 2}}),
                .optimizer =
                    optim::MakeOptimizer({"SGD", {{"learning_rate", 1}, {"global_clipnorm", 5}}}).value(),
                .final_version = 0}) {
    shard_.ConnectTo(&port_);
    auto push = shard_.BeginPush({.gradient = gradient_, .read_values = true});
    EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes({6, 8})), absl::OkStatus());
    shard_.FinishPush(std::move(push),
                      [this](absl::StatusOr<PushResult> result) { answer_ = std::move(result); });
  }
  void Decide(LogEntry entry) {
    entry.index = shard_.next_index();
    shard_.Append(entry);
    shard_.Flush();
  }
  const Gradient gradient_ = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  RecordingPort port_;
  Shard shard_;
  std::optional<absl::StatusOr<PushResult>> answer_;  // nothing while the push waits
};

TEST_F(ClippingShardTest, AMeasureReportsSumsAndTheApplyUsesTheTotals) {
  Decide({.action = Measure{.version = 1, .contributors = {gradient_}, .norms = optim::Norms::kGradient}});
  ASSERT_EQ(port_.sums.size(), 1u);
  EXPECT_EQ(port_.sums[0].index, 1);
  ASSERT_EQ(port_.sums[0].slices.size(), 1u);
  EXPECT_THAT(port_.sums[0].slices[0].bands, ElementsAre(optim::Squares{.gradient = 100}));
  EXPECT_FALSE(answer_.has_value());
  EXPECT_EQ(shard_.store().current().version, 0);
  // Another server has three times this sum, so the total norm is 20.
  Decide({.action = Apply{.version = 1, .contributors = {gradient_}},
          .known = {{"a", {.gradient = 100}}, {"b", {.gradient = 300}}}});
  EXPECT_EQ((*answer_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(ToVector((*answer_)->values), ElementsAre(-1.5f, -2));
}

TEST_F(ClippingShardTest, UnansweredSumsCanBeReportedAgain) {
  EXPECT_FALSE(shard_.UnansweredSums().has_value());
  Decide({.action = Measure{.version = 1, .contributors = {gradient_}, .norms = optim::Norms::kGradient}});
  ASSERT_TRUE(shard_.UnansweredSums().has_value());
  EXPECT_EQ(shard_.UnansweredSums()->index, 1);
  EXPECT_EQ(shard_.UnansweredSums()->slices[0].bands, port_.sums[0].slices[0].bands);
  Decide({.action = Apply{.version = 1, .contributors = {gradient_}}, .known = {{"a", {.gradient = 100}}}});
  EXPECT_FALSE(shard_.UnansweredSums().has_value());
}

TEST_F(ClippingShardTest, AnUpdateThatWasNotMeasuredFailsTheJob) {
  Decide({.action = Apply{.version = 1, .contributors = {gradient_}}});
  EXPECT_EQ(answer_->status(),
            absl::InternalError("ps/0 made an invalid decision: entry 1 of the log comes after 0 of the 1 "
                                "norms of an update"));
}

TEST_F(ClippingShardTest, AMeasureOfOtherNormsFailsTheJob) {
  Decide({.action = Measure{.version = 1, .contributors = {gradient_}, .norms = optim::Norms::kLayer}});
  EXPECT_EQ(shard_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(port_.sums, IsEmpty());
}

TEST_F(ClippingShardTest, AMeasureOfAMissingPushFailsTheJob) {
  Gradient other = gradient_;
  other.key.worker = 4;
  Decide({.action = Measure{.version = 1, .contributors = {other}, .norms = optim::Norms::kGradient}});
  EXPECT_EQ(shard_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(port_.sums, IsEmpty());
  EXPECT_EQ(answer_->status(), shard_.failure());
}

}  // namespace
}  // namespace cairn::ps

#include "ps/shard/push_table.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class PushTableTest : public testing::Test {
 protected:
  static Gradient Of(int worker, int64_t step = 1, uint64_t incarnation = 1) {
    return {.key = {.worker = worker, .incarnation = incarnation, .step = step}, .examples = 1};
  }
  PushTable::Added Add(const Gradient& gradient) {
    PushTable::CompletePush push = {.gradient = gradient, .data = {}, .waiting = {}};
    push.waiting.reply = [this](absl::StatusOr<PushResult> result) { answers_.push_back(std::move(result)); };
    return pushes_.Add(push);
  }
  static Ledger::Ruling Accepted(const Gradient& gradient, int64_t version) {
    return {.step = gradient.key.step, .outcome = v1::OUTCOME_ACCEPTED, .version = version};
  }

  const std::unique_ptr<optim::Optimizer> optimizer_ = Sgd(1);
  optim::VariableStore store_{Vectors({{"a", 1}}), optimizer_.get()};
  FinalVersion final_version_{3};
  PushTable pushes_{store_, final_version_};
  std::vector<absl::StatusOr<PushResult>> answers_;
};

TEST_F(PushTableTest, ANewPushIsStagedAndWaits) {
  const PushTable::Added added = Add(Of(0));
  EXPECT_TRUE(added.staged);
  EXPECT_FALSE(added.answer.has_value());
  EXPECT_TRUE(pushes_.IsKnown(Of(0).key));
  EXPECT_FALSE(pushes_.IsKnown(Of(0, 2).key));
  EXPECT_THAT(pushes_.StagedGradients(), ElementsAre(Of(0)));
}

TEST_F(PushTableTest, ADecisionReturnsThePushAndItsRepeats) {
  Add(Of(0));
  EXPECT_FALSE(Add(Of(0)).staged);
  const auto taken = pushes_.Take(Of(0).key, Accepted(Of(0), 1));
  ASSERT_TRUE(taken.has_value());
  ASSERT_THAT(taken->waiting, SizeIs(2));
  EXPECT_FALSE(taken->waiting[0].duplicate);
  EXPECT_TRUE(taken->waiting[1].duplicate);
  EXPECT_THAT(pushes_.StagedGradients(), IsEmpty());
  EXPECT_EQ(pushes_.duplicates(), 1);
}

TEST_F(PushTableTest, ADecidedPushIsAnsweredFromTheLedger) {
  EXPECT_FALSE(pushes_.Take(Of(0).key, Accepted(Of(0), 3)).has_value()) << "it has not come yet";
  const PushTable::Added late = Add(Of(0));
  EXPECT_FALSE(late.staged);
  ASSERT_TRUE(late.answer.has_value() && late.answer->ok());
  EXPECT_EQ((*late.answer)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_TRUE((*late.answer)->finished) << "the job ends at version 3";
}

TEST_F(PushTableTest, TheLastMissingPushIsTheAwaitedOne) {
  Add(Of(0));
  EXPECT_THAT(pushes_.AwaitMissing({Of(0), Of(1), Of(2)}), ElementsAre(Of(1).key, Of(2).key));
  EXPECT_FALSE(Add(Of(1)).was_awaited) << "worker 2's is still missing";
  EXPECT_THAT(pushes_.missing(), ElementsAre(Of(2).key));
  EXPECT_FALSE(Add(Of(3)).was_awaited) << "the log does not wait for it";
  EXPECT_TRUE(Add(Of(2)).was_awaited);
}

TEST_F(PushTableTest, ADeferredPushIsDecidedButStillWaits) {
  Add(Of(0));
  pushes_.Defer(Of(0), 2);
  EXPECT_EQ(pushes_.DeferredStaleness(Of(0).key), 2);
  EXPECT_EQ(pushes_.load().staged, 0);
  EXPECT_THAT(pushes_.StagedGradients(), IsEmpty());
  EXPECT_THAT(pushes_.Take(Of(0).key, Accepted(Of(0), 1))->waiting, SizeIs(1));
  EXPECT_EQ(pushes_.DeferredStaleness(Of(0).key), std::nullopt);
}

TEST_F(PushTableTest, TheFirstFailureClosesTheTable) {
  Add(Of(0));
  const auto replies = pushes_.Close(absl::InternalError("first"));
  ASSERT_TRUE(replies.has_value());
  EXPECT_THAT(*replies, SizeIs(1));
  EXPECT_FALSE(pushes_.Close(absl::InternalError("second")).has_value());
  EXPECT_EQ(Add(Of(1)).answer->status(), absl::InternalError("first"));
}

TEST_F(PushTableTest, AStateKeepsDecisionsAndDeferredAnswers) {
  Add(Of(0));
  pushes_.Take(Of(0).key, Accepted(Of(0), 1));
  Add(Of(1));
  pushes_.Defer(Of(1), 2);
  Add(Of(2));
  v1::ReplicatedShard state;
  pushes_.Save(state);
  PushTable other(store_, final_version_);
  other.Restore(state, {{Of(1), 2}});
  EXPECT_TRUE(other.IsKnown(Of(0).key));
  EXPECT_EQ(other.DeferredStaleness(Of(1).key), 2);
  EXPECT_FALSE(other.IsKnown(Of(2).key)) << "undecided: its worker sends it again";
}

}  // namespace
}  // namespace cairn::ps

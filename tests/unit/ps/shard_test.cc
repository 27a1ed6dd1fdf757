#include "ps/shard.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecordingPort final : public SequencerPort {
 public:
  void ReportStaged(const Gradient& gradient) override { staged.push_back(gradient.key); }
  void ReportExecuted(int64_t index) override { executed = index; }
  std::vector<PushKey> staged;
  int64_t executed = 0;
};

// What came of a push or a read; nothing while it waits.
using PushAnswer = std::optional<absl::StatusOr<PushResult>>;
using ReadAnswer = std::optional<absl::StatusOr<ReadResult>>;

// A shard of two elements, under SGD at rate 1. The test is its sequencer.
class ShardTest : public testing::Test {
 protected:
  ShardTest() : shard_({.slices = Vectors({{"a", 1}, {"b", 1}}), .optimizer = Sgd(1), .final_version = 3}) {
    shard_.ConnectTo(&port_);
  }

  static PushKey Key(int worker, int64_t step, uint64_t incarnation = 1) {
    return {.worker = worker, .incarnation = incarnation, .step = step};
  }
  static Gradient From(const PushKey& key, int64_t base = 0) {
    return {.key = key, .base_version = base, .examples = 1};
  }

  // The answer is written into `answer` when it comes.
  void Push(const PushKey& key, std::vector<float> values, PushAnswer& answer) {
    auto push = shard_.BeginPush({.gradient = From(key), .read_values = true});
    EXPECT_EQ(push->AddChunk(0, Bytes(std::move(values))), absl::OkStatus());
    shard_.FinishPush(std::move(push),
                      [&answer](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  }
  void Read(const std::string& mark, ReadAnswer& answer) {
    shard_.Read(mark, [&answer](absl::StatusOr<ReadResult> result) { answer = std::move(result); });
  }
  void Decide(std::variant<Apply, Refuse, Mark> what) {
    shard_.Append({shard_.next_index(), std::move(what)});
    shard_.Flush();
  }
  void ApplyRound(int64_t version, const std::vector<PushKey>& keys) {
    Apply apply = {.version = version, .contributors = {}};
    for (const PushKey& key : keys) apply.contributors.push_back(From(key, version - 1));
    Decide(std::move(apply));
  }

  RecordingPort port_;
  Shard shard_;
  PushAnswer first_, second_, third_;
};

TEST_F(ShardTest, APushIsReportedWhenCompleteAndAnsweredByItsDecision) {
  Push(Key(0, 1), {1, 2}, first_);
  EXPECT_THAT(port_.staged, ElementsAre(Key(0, 1)));
  EXPECT_FALSE(first_.has_value());
  ApplyRound(1, {Key(0, 1)});
  ASSERT_TRUE(first_.has_value());
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ((*first_)->version, 1);
  EXPECT_FALSE((*first_)->duplicate);
  EXPECT_THAT(ToVector((*first_)->values), ElementsAre(-1, -2));
  EXPECT_EQ(port_.executed, 1);
}

TEST_F(ShardTest, AnIncompletePushIsRefusedAndLeavesNoTrace) {
  Push(Key(0, 1), {1}, first_);
  EXPECT_EQ(first_->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(first_->status().message()), HasSubstr("step 1: 1 of 2 elements came"));
  EXPECT_THAT(port_.staged, IsEmpty());
  Push(Key(0, 1), {1, 1}, second_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE((*second_)->duplicate);
}

TEST_F(ShardTest, ARepeatOfAPushUnderWayGetsTheSameAnswer) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(0, 1), {9, 9}, second_);
  EXPECT_EQ(port_.staged.size(), 1u) << "reported once";
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE((*first_)->duplicate);
  EXPECT_TRUE((*second_)->duplicate);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(ToVector((*second_)->values), Each(-1)) << "counted once, as it came first";
  EXPECT_EQ(shard_.duplicates(), 1);
}

TEST_F(ShardTest, ARepeatOfADecidedPushIsAnsweredAtOnceWithoutValues) {
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  Push(Key(0, 1), {1, 1}, second_);
  EXPECT_TRUE((*second_)->duplicate);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_EQ((*second_)->version, 1);
  EXPECT_EQ((*second_)->values.data, nullptr) << "they may be of a later version by now";
  EXPECT_THAT(ToVector(shard_.store().current()), Each(-1));
}

TEST_F(ShardTest, AStepOlderThanTheLastDecidedIsRejected) {
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(1, {Key(0, 2)});
  Push(Key(0, 1), {1, 1}, second_);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
}

TEST_F(ShardTest, AStepOvertakenByALaterOneUnderWayIsRejected) {
  Push(Key(0, 2), {1, 1}, first_);
  Push(Key(0, 1), {1, 1}, second_);
  ASSERT_TRUE(second_.has_value());
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
  ApplyRound(1, {Key(0, 2)});
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_ACCEPTED);
}

TEST_F(ShardTest, APushOfAnOldLifeIsRejected) {
  Push(Key(0, 1, /*incarnation=*/2), {1, 1}, first_);
  Push(Key(0, 5, /*incarnation=*/1), {1, 1}, second_);
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_REJECTED);
}

TEST_F(ShardTest, ARefusalTellsOutcomeStalenessAndTheValuesToGoOnFrom) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(1, 1), {8, 8}, second_);
  ApplyRound(1, {Key(0, 1)});
  Decide(Refuse{.key = Key(1, 1), .reason = Refuse::Reason::kStale, .staleness = 1});
  EXPECT_EQ((*second_)->outcome, v1::OUTCOME_STALE);
  EXPECT_EQ((*second_)->staleness, 1);
  EXPECT_THAT(ToVector((*second_)->values), Each(-1));
}

TEST_F(ShardTest, ADecisionThatComesBeforeItsPushAnswersItWhenItComes) {
  Decide(Refuse{.key = Key(0, 1), .reason = Refuse::Reason::kNotAMember});
  Push(Key(0, 1), {1, 1}, first_);
  EXPECT_EQ((*first_)->outcome, v1::OUTCOME_REJECTED);
  EXPECT_THAT(port_.staged, IsEmpty());
}

TEST_F(ShardTest, TheLastVersionIsMarkedAsSuch) {
  for (int step = 1; step <= 3; ++step) {
    Push(Key(0, step), {1, 1}, first_);
    ApplyRound(step, {Key(0, step)});
    EXPECT_EQ((*first_)->finished, step == 3);
  }
}

TEST_F(ShardTest, AReadByMarkSeesTheValuesAtThatPointOfTheLog) {
  ReadAnswer before, after, now;
  Read("m", before);  // comes before the log gets there
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_FALSE(before.has_value());
  Decide(Mark{"m"});
  Decide(Mark{"n"});
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(2, {Key(0, 2)});
  Read("n", after);  // comes after
  Read("", now);
  EXPECT_EQ((*before)->values.version, 1);
  EXPECT_THAT(ToVector((*before)->values), Each(-1));
  EXPECT_EQ((*after)->values.version, 1);
  EXPECT_EQ((*now)->values.version, 2);
}

TEST_F(ShardTest, AReaderThatComesTooLateForItsMarkIsTold) {
  for (int mark = 0; mark < 100; ++mark) Decide(Mark{absl::StrCat(mark)});
  ReadAnswer late, recent;
  Read("0", late);
  Read("99", recent);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(recent->ok());
}

TEST_F(ShardTest, AWriteTakesEffectBetweenTwoEntriesOfTheLog) {
  Push(Key(0, 1), {1, 1}, first_);
  ApplyRound(1, {Key(0, 1)});
  auto data = std::make_unique<Accumulator>(shard_.store().pool());
  ASSERT_TRUE(data->Add(1, Bytes({50})).ok());
  int64_t written_at = -1;
  shard_.Write(std::move(data), [&](int64_t version) { written_at = version; });
  EXPECT_EQ(written_at, 1);
  Push(Key(0, 2), {1, 1}, first_);
  ApplyRound(2, {Key(0, 2)});
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-2, 49));
}

TEST_F(ShardTest, AFailureAnswersAllThatWaitsAndAllThatComes) {
  ReadAnswer waiting, coming;
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(0, 1), {1, 1}, second_);
  Read("m", waiting);
  shard_.Fail(absl::InternalError("the reason"));
  shard_.Fail(absl::InternalError("a later one"));
  Push(Key(1, 1), {1, 1}, third_);
  Read("", coming);
  for (const PushAnswer* answer : {&first_, &second_, &third_})
    EXPECT_EQ(answer->value().status(), absl::InternalError("the reason"));
  for (const ReadAnswer* answer : {&waiting, &coming})
    EXPECT_EQ(answer->value().status(), absl::InternalError("the reason"));
}

TEST_F(ShardTest, AnUpdateOfAPushThatIsNotHereFailsTheJob) {
  ApplyRound(1, {Key(4, 1)});
  EXPECT_EQ(shard_.failure().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(shard_.failure().message()), HasSubstr("push of worker 4"));
  EXPECT_EQ(shard_.store().current().version, 0);
}

TEST_F(ShardTest, WhatIsStagedAndUndecidedCanBeSaidAgain) {
  Push(Key(0, 1), {1, 1}, first_);
  Push(Key(1, 1), {1, 1}, second_);
  ApplyRound(1, {Key(0, 1)});
  EXPECT_THAT(shard_.StagedGradients(), ElementsAre(From(Key(1, 1))));
  EXPECT_EQ(shard_.next_index(), 2);
}

}  // namespace
}  // namespace cairn::ps

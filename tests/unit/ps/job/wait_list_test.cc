#include "ps/job/wait_list.h"

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

class WaitListTest : public testing::Test {
 protected:
  using Answer = std::optional<absl::StatusOr<v1::WaitResponse>>;

  // A call at time 0; it is answered when the function returns, if it is due.
  void Wait(v1::Condition condition, double seconds, Answer& answer) {
    v1::WaitRequest request;
    request.set_condition(condition);
    request.set_wait_seconds(seconds);
    WaitList::Calls calls;
    waiting_.Add(
        request, At(0),
        [&answer](absl::StatusOr<v1::WaitResponse> response) { answer = std::move(response); }, calls);
    for (auto& call : calls) call();
  }
  void Collect(int now) {
    WaitList::Calls calls;
    waiting_.Collect(At(now), calls);
    for (auto& call : calls) call();
  }
  void Create() {
    lifecycle_.Create(
        ActiveJob::Create(TrainingJob().job(), Vectors({{"a", 2}}), 1, {.memory_limit = 1 << 20}).value());
  }

  JobLifecycle lifecycle_{"ps/0", "ps/0", 500};
  WaitList waiting_{lifecycle_, "ps/0"};
};

TEST_F(WaitListTest, ACallIsAnsweredWhenItsConditionHolds) {
  Answer answer;
  Wait(v1::CONDITION_READY, 20, answer);
  Create();
  Collect(1);
  EXPECT_FALSE(answer.has_value());
  EXPECT_EQ(waiting_.size(), 1u);
  lifecycle_.BecomeReady(At(1));
  Collect(1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE((*answer)->holds());
  EXPECT_EQ(waiting_.size(), 0u);
}

TEST_F(WaitListTest, ACallWaitsAtMost30Seconds) {
  Answer answer;
  Wait(v1::CONDITION_OVER, std::numeric_limits<double>::infinity(), answer);
  Collect(29);
  EXPECT_FALSE(answer.has_value());
  Collect(30);
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE((*answer)->holds());
  EXPECT_EQ((*answer)->missing(), "the chief");
}

TEST_F(WaitListTest, ACallOfUnknownConditionEndsWithItsTime) {
  Answer answer;
  Wait(v1::CONDITION_UNSPECIFIED, 0, answer);
  EXPECT_EQ((*answer)->missing(), "unknown condition 0");
}

TEST_F(WaitListTest, WithoutDynamicShardingThereIsNoWork) {
  Create();
  lifecycle_.BecomeReady(At(0));
  Answer answer;
  Wait(v1::CONDITION_WORK, 0, answer);
  EXPECT_FALSE((*answer)->holds());
  EXPECT_EQ((*answer)->missing(), "ps/0 does not assign data");
}

TEST_F(WaitListTest, MembersThatHaveNotJoinedAreMissing) {
  Answer answer;
  Wait(v1::CONDITION_ALL_OTHERS_LEFT, 0, answer);
  EXPECT_EQ((*answer)->missing(), "the job: this server has none");
  Create();
  Wait(v1::CONDITION_ALL_OTHERS_LEFT, 0, answer);
  EXPECT_EQ((*answer)->missing(), "worker/1 (never joined)");
}

TEST_F(WaitListTest, AFailureAnswersWaitingAndLaterCalls) {
  Create();
  Answer waiting, later;
  Wait(v1::CONDITION_READY, 20, waiting);
  lifecycle_.Fail(absl::InternalError("NaN"), At(1));
  Collect(1);
  EXPECT_EQ(waiting->status(), absl::InternalError("NaN"));
  Wait(v1::CONDITION_READY, 20, later);
  EXPECT_EQ(later->status(), absl::InternalError("NaN"));
}

TEST_F(WaitListTest, AStoppingServerRefusesCalls) {
  lifecycle_.Shutdown();
  Answer answer;
  Wait(v1::CONDITION_READY, 20, answer);
  EXPECT_EQ(answer->status(), absl::UnavailableError("the server is stopping"));
}

TEST_F(WaitListTest, ABackupRefusesCalls) {
  lifecycle_.BecomeBackup(
      ActiveJob::Create(TrainingJob().job(), Vectors({{"a", 2}}), 1, {.memory_limit = 1 << 20}).value(), 7);
  Answer answer;
  Wait(v1::CONDITION_READY, 20, answer);
  EXPECT_TRUE(absl::IsUnavailable(answer->status()));
}

}  // namespace
}  // namespace cairn::ps

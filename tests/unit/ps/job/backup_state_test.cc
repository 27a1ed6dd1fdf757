#include "ps/job/backup_state.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class RecordedAnswers final : public ReplicationSink {
 public:
  void Answer(const v1::ReplicationAck& answer) override {
    if (answer.beat() != 0) beats.push_back(answer.beat());
    if (answer.replicated() != 0) replicated.push_back(answer.replicated());
  }
  void Close(absl::Status) override {}

  std::vector<uint64_t> beats, replicated;
};

// The backup of ps/1's shard, in the process of ps/0. It holds no sequencer.
class BackupStateTest : public testing::Test {
 protected:
  BackupStateTest() {
    v1::Job job;
    job.set_mode(v1::MODE_VARIABLES);
    job_ = ActiveJob::Create(job, Vectors({{"a", 2}}), 1, {.memory_limit = 1 << 20}).value();
    backup_.Open(sink_, /*epoch=*/3, now_);
  }
  absl::Status Restore(const v1::ReplicationBody& body) { return backup_.Restore(body, {}, *job_, now_); }
  void Echo(uint64_t beat) {
    v1::ReplicationBody body;
    body.set_echo(beat);
    EXPECT_EQ(Restore(body), absl::OkStatus());
  }

  TimePoint now_ = TimePoint(std::chrono::hours(1));
  std::shared_ptr<RecordedAnswers> sink_ = std::make_shared<RecordedAnswers>();
  std::shared_ptr<ActiveJob> job_;
  BackupState backup_{"ps/1", "ps/0"};
};

TEST_F(BackupStateTest, SendsAHeartbeatEvery200Milliseconds) {
  backup_.Beat(now_);
  backup_.Beat(now_ + milliseconds(199));
  EXPECT_THAT(sink_->beats, ElementsAre(1));
  backup_.Beat(now_ + milliseconds(200));
  EXPECT_THAT(sink_->beats, ElementsAre(1, 2));
}

TEST_F(BackupStateTest, WithoutAStreamItSendsNoHeartbeats) {
  EXPECT_EQ(backup_.EndStream(), sink_);
  backup_.Beat(now_);
  EXPECT_THAT(sink_->beats, IsEmpty());
}

TEST_F(BackupStateTest, AcknowledgesItems) {
  backup_.Acknowledge(17);
  EXPECT_THAT(sink_->replicated, ElementsAre(17));
}

TEST_F(BackupStateTest, WhileItsPrimaryIsHeardItMayNotBePromoted) {
  EXPECT_TRUE(absl::IsUnavailable(backup_.CheckMayPromote(now_ + kSilent)));
  EXPECT_EQ(backup_.CheckMayPromote(now_ + kSilent + milliseconds(1)), absl::OkStatus());
  EXPECT_EQ(backup_.CheckMayPromote(now_ + kRight), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(backup_.CheckMayPromote(now_ + kRight + milliseconds(1))))
      << "the primary may have continued alone";
}

TEST_F(BackupStateTest, WhenItsStreamBreaksItMayBePromotedAtOnce) {
  backup_.EndStream();
  EXPECT_EQ(backup_.CheckMayPromote(now_), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(backup_.CheckMayPromote(now_ + kRight + milliseconds(1))));
}

// The right counts from when the heartbeat was sent, not from when its echo came.
TEST_F(BackupStateTest, AnEchoExtendsTheRightFromTheHeartbeatOn) {
  backup_.Beat(now_);
  backup_.Beat(now_ + seconds(1));
  backup_.Beat(now_ + seconds(2));
  now_ += seconds(9);
  Echo(2);
  backup_.EndStream();
  EXPECT_EQ(backup_.CheckMayPromote(now_ + seconds(2)), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(backup_.CheckMayPromote(now_ + seconds(2) + milliseconds(1))));
  Echo(2);  // a repeat changes nothing
  EXPECT_TRUE(absl::IsAborted(backup_.CheckMayPromote(now_ + seconds(2) + milliseconds(1))));
}

TEST_F(BackupStateTest, IsNotInSyncBeforeTheShardHasArrived) {
  v1::ReplicationBody in_sync;
  in_sync.set_in_sync(true);
  EXPECT_EQ(Restore(in_sync).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(backup_.in_sync());
}

TEST_F(BackupStateTest, RefusesItemsOfASequencerThatTheJobLacks) {
  v1::ReplicationBody body;
  body.mutable_input()->mutable_left()->set_worker(0);
  EXPECT_EQ(Restore(body), absl::InvalidArgumentError("ps/1 has no sequencer to replicate"));
}

TEST_F(BackupStateTest, ANewStreamStartsOver) {
  backup_.Beat(now_);
  const auto next = std::make_shared<RecordedAnswers>();
  backup_.Open(next, /*epoch=*/4, now_);
  EXPECT_FALSE(backup_.IsFedBy(sink_.get()));
  EXPECT_TRUE(backup_.IsFedBy(next.get()));
  EXPECT_EQ(backup_.epoch(), 4);
  backup_.Beat(now_);
  EXPECT_THAT(next->beats, ElementsAre(1)) << "its own heartbeats, from 1";
  EXPECT_EQ(backup_.Reset(), next);
  EXPECT_EQ(backup_.epoch(), 0);
  EXPECT_FALSE(backup_.primary_is_heard(now_));
}

}  // namespace
}  // namespace cairn::ps

// Answers of a primary with a backup to clients, and the cases in which it continues alone.
#include "ps/replication/replicator.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace cairn::ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A backup that acknowledges items and sends heartbeats when the test calls for it.
class Backup {
 public:
  std::unique_ptr<ReplicationStream> Dial(ReplicationStreamHandler& handler) {
    handler_ = &handler;
    ++dials_;
    if (refuses_.has_value()) {
      handler.OnClosed(*refuses_);
      handler_ = nullptr;
    }
    return std::make_unique<Stream>(*this);
  }
  void Hold() {
    v1::ReplicationAck answer;
    answer.set_replicated(last_);
    answer.set_keeper(life_);
    if (handler_ != nullptr) handler_->OnAnswer(answer);
  }
  // Also acknowledges the echo.
  void Beat() {
    v1::ReplicationAck answer;
    answer.set_beat(++beats_);
    if (handler_ == nullptr) return;
    handler_->OnAnswer(answer);
    Hold();
  }
  void Answer(const v1::ReplicationAck& answer) {
    if (handler_ != nullptr) handler_->OnAnswer(answer);
  }
  void Break(const absl::Status& status) {
    if (handler_ != nullptr) std::exchange(handler_, nullptr)->OnClosed(status);
  }
  void Refuse(absl::Status with) { refuses_ = std::move(with); }
  // Its process ends, and another one is there when the connection is seen to have broken.
  void BeginNewLife() {
    ++life_;
    Break(absl::UnavailableError("the connection broke"));
  }
  int dials() const { return dials_; }
  // The numbers of items that were sent together.
  const std::vector<size_t>& batches() const { return batches_; }
  bool is_dialed() const { return handler_ != nullptr; }

 private:
  class Stream final : public ReplicationStream {
   public:
    explicit Stream(Backup& backup) : backup_(backup) {}
    ~Stream() override { backup_.Break(absl::CancelledError("closed")); }
    void Send(std::vector<NumberedItem> items) override {
      backup_.last_ = items.back().number;
      backup_.batches_.push_back(items.size());
    }

   private:
    Backup& backup_;
  };
  ReplicationStreamHandler* handler_ = nullptr;
  std::optional<absl::Status> refuses_;
  uint64_t last_ = 0, beats_ = 0, life_ = 1;
  int dials_ = 0;
  std::vector<size_t> batches_;
};

const absl::Status kGone = absl::UnavailableError("failed to connect: Connection refused");
const absl::Status kBroken = absl::UnavailableError("the connection broke");

// ps/0, whose backup on ps/1 is in sync.
class ReplicatorTest : public testing::Test {
 protected:
  ReplicatorTest() {
    replicator_.Start();
    replicator_.Step();
    backup_.Hold();
    replicator_.Step();
    backup_.Hold();
    replicator_.Step();
    EXPECT_TRUE(replicator_.was_in_sync());
    Pass(seconds(2));
  }
  // Time passes with heartbeats and echoes.
  void Pass(Duration time) {
    for (Duration passed{}; passed < time; passed += milliseconds(200)) {
      clock_.Advance(milliseconds(200));
      backup_.Beat();
      replicator_.Step();
    }
  }
  // Time passes without them.
  void PassInSilence(Duration time) {
    for (Duration passed{}; passed < time; passed += milliseconds(200)) {
      clock_.Advance(milliseconds(200));
      replicator_.Step();
    }
  }
  // Requests an answer that waits for the backup.
  void Tell() {
    replicator_.Send(Replicator::Component::kShard, {});
    replicator_.WhenReplicated([this](const absl::Status& lost) { told_ = lost; });
  }

  // A report to the sequencer.
  static ReplicationItem Report() {
    ReplicationItem report;
    report.body.mutable_input()->mutable_executed()->set_index(1);
    return report;
  }

  test::FakeClock clock_;
  Backup backup_;
  std::optional<absl::Status> told_;
  Replicator replicator_{{.shard = "ps/0",
                          .backup = "ps/1 at host:2",
                          .origin = {},
                          .dial = [this](ReplicationStreamHandler& handler) { return backup_.Dial(handler); },
                          .capture =
                              [this] {
                                for (size_t component = 0; component < Replicator::kComponents; ++component) {
                                  replicator_.SendState(static_cast<Replicator::Component>(component), {});
                                }
                              },
                          .clock = &clock_}};
};

TEST_F(ReplicatorTest, AnswersWaitForTheBackup) {
  Tell();
  EXPECT_FALSE(told_.has_value());
  backup_.Hold();
  EXPECT_EQ(told_, absl::OkStatus());
}

TEST_F(ReplicatorTest, AnItemThatNothingWaitsForIsSentWithTheNextOne) {
  const size_t before = backup_.batches().size();
  replicator_.Send(Replicator::Component::kSequencer, Report());
  replicator_.Send(Replicator::Component::kSequencer, Report());
  EXPECT_EQ(backup_.batches().size(), before);
  Tell();
  ASSERT_EQ(backup_.batches().size(), before + 1);
  EXPECT_EQ(backup_.batches().back(), 3u);
  backup_.Hold();
  EXPECT_EQ(told_, absl::OkStatus());
}

TEST_F(ReplicatorTest, AnItemThatNothingWaitsForIsSentWithTheNextEcho) {
  replicator_.Send(Replicator::Component::kSequencer, Report());
  Pass(milliseconds(200));
  EXPECT_EQ(backup_.batches().back(), 2u);
}

TEST_F(ReplicatorTest, TooManyItemsAreNotHeldBack) {
  const size_t before = backup_.batches().size();
  for (int i = 0; i < 1000; ++i) replicator_.Send(Replicator::Component::kSequencer, Report());
  EXPECT_GT(backup_.batches().size(), before);
}

TEST_F(ReplicatorTest, AnyOtherItemIsSentAtOnceWithWhatCameBefore) {
  const size_t before = backup_.batches().size();
  replicator_.Send(Replicator::Component::kSequencer, Report());
  ReplicationItem member;
  member.body.mutable_member()->set_incarnation(1);
  replicator_.Send(Replicator::Component::kMembers, std::move(member));
  ASSERT_EQ(backup_.batches().size(), before + 1);
  EXPECT_EQ(backup_.batches().back(), 2u);
}

TEST_F(ReplicatorTest, ContinuesAloneWhenABackupThatJustHeardFromItIsGone) {
  Tell();
  backup_.Refuse(kGone);
  backup_.Break(kBroken);
  PassInSilence(milliseconds(400));
  EXPECT_EQ(told_, absl::OkStatus());
  EXPECT_EQ(replicator_.fenced(), "");
}

TEST_F(ReplicatorTest, IsFencedWhenABackupThatHeardNothingForLongIsGone) {
  Tell();
  clock_.Advance(kSilent + seconds(1));  // this process was paused
  backup_.Refuse(kGone);
  backup_.Break(kBroken);
  PassInSilence(milliseconds(400));
  ASSERT_TRUE(told_.has_value());
  EXPECT_EQ(told_->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(replicator_.fenced(), HasSubstr("may have been promoted in place of ps/0"));
}

TEST_F(ReplicatorTest, IsFencedWhenARestartedBackupHeardNothingForLongBefore) {
  Tell();
  clock_.Advance(kSilent + seconds(1));  // this process was paused
  backup_.BeginNewLife();
  PassInSilence(milliseconds(400));
  backup_.Hold();  // it agrees to be the backup
  replicator_.Step();
  ASSERT_TRUE(told_.has_value());
  EXPECT_EQ(told_->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(replicator_.fenced(), HasSubstr("may have been promoted in place of ps/0"));
  EXPECT_FALSE(backup_.is_dialed());
}

TEST_F(ReplicatorTest, ABackupThatStartsOverInTheSameProcessWasNotPromoted) {
  Tell();
  clock_.Advance(kSilent + seconds(1));
  backup_.Break(kBroken);
  PassInSilence(milliseconds(400));
  backup_.Hold();
  replicator_.Step();
  EXPECT_EQ(told_, absl::OkStatus());
  EXPECT_EQ(replicator_.fenced(), "");
}

TEST_F(ReplicatorTest, ARestartedBackupThatHadJustHeardFromUsIsAccepted) {
  Tell();
  backup_.BeginNewLife();
  PassInSilence(milliseconds(400));
  backup_.Hold();
  replicator_.Step();
  EXPECT_EQ(told_, absl::OkStatus());
  EXPECT_EQ(replicator_.fenced(), "");
}

TEST_F(ReplicatorTest, IsFencedWhenTheBackupWasPromoted) {
  Tell();
  backup_.Refuse(absl::AbortedError("ps/1 has been promoted in place of ps/0"));
  backup_.Break(kBroken);
  PassInSilence(milliseconds(400));
  ASSERT_TRUE(told_.has_value());
  EXPECT_FALSE(told_->ok());
  EXPECT_EQ(replicator_.fenced(), "ps/1 at host:2 has been promoted in place of ps/0");
}

TEST_F(ReplicatorTest, ContinuesAloneWhenTheRightOfASilentBackupHasExpired) {
  Tell();
  backup_.Refuse(kBroken);
  backup_.Break(kBroken);
  PassInSilence(kRight);
  EXPECT_FALSE(told_.has_value());
  PassInSilence(kAloneAfter - kRight + seconds(1));
  EXPECT_EQ(told_, absl::OkStatus());
}

TEST_F(ReplicatorTest, AsksTheBackupFirstAfterAPause) {
  Tell();
  backup_.Refuse(absl::AbortedError("ps/1 has been promoted in place of ps/0"));
  const int dials = backup_.dials();
  clock_.Advance(2 * kAloneAfter);
  replicator_.Step();
  EXPECT_FALSE(told_.has_value() && told_->ok());
  PassInSilence(milliseconds(400));
  EXPECT_GT(backup_.dials(), dials);
  EXPECT_NE(replicator_.fenced(), "");
}

TEST_F(ReplicatorTest, WaitsForASilentBackupAfterAPause) {
  Tell();
  backup_.Refuse(kBroken);
  clock_.Advance(2 * kAloneAfter);
  replicator_.Step();
  PassInSilence(seconds(3));
  EXPECT_FALSE(told_.has_value());
  PassInSilence(seconds(3));
  EXPECT_EQ(told_, absl::OkStatus());
}

// At the end of a job, the backup's process may end a moment before this one.
TEST_F(ReplicatorTest, ReportsABackupThatStaysLost) {
  Pass(seconds(12));  // it may warn again
  testing::internal::CaptureStdout();
  backup_.Refuse(kGone);
  backup_.Break(kBroken);
  PassInSilence(milliseconds(1800));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  testing::internal::CaptureStdout();
  PassInSilence(seconds(2));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("ps/0's shard has no backup now: ps/1 at host:2: connection refused"));
}

TEST_F(ReplicatorTest, ReportsNothingAfterItWasStopped) {
  testing::internal::CaptureStdout();
  backup_.Refuse(kGone);
  backup_.Break(kBroken);
  PassInSilence(seconds(1));
  replicator_.Quit();
  PassInSilence(seconds(4));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

// A primary whose state has 64 MiB, which may take 8 s.
class CatchingUpTest : public testing::Test {
 protected:
  CatchingUpTest() {
    replicator_.Start();
    replicator_.Step();
    backup_.Hold();
    replicator_.Step();  // the state is under way
  }
  void PassWithBeats(Duration time) {
    for (Duration passed{}; passed < time; passed += milliseconds(200)) {
      clock_.Advance(milliseconds(200));
      v1::ReplicationAck beat;
      beat.set_beat(1);
      backup_.Answer(beat);
      replicator_.Step();
    }
  }
  static ReplicationItem Mean(int64_t floats) {
    return {.body = {}, .floats = {std::make_shared<AlignedBuffer>(floats)}};
  }
  bool Answers() {
    bool told = false;
    replicator_.WhenReplicated([&told](const absl::Status&) { told = true; });
    return told;
  }

  test::FakeClock clock_;
  Backup backup_;
  Replicator replicator_{{.shard = "ps/0",
                          .backup = "ps/1 at host:2",
                          .origin = {},
                          .dial = [this](ReplicationStreamHandler& handler) { return backup_.Dial(handler); },
                          .capture =
                              [this] {
                                ReplicationItem state = Mean(16 << 20);
                                state.state = true;
                                replicator_.SendState(Replicator::Component::kShard, std::move(state));
                                replicator_.SendState(Replicator::Component::kSequencer, {});
                                replicator_.SendState(Replicator::Component::kMembers, {});
                              },
                          .most_behind_bytes = 4096,
                          .clock = &clock_}};
};

TEST_F(CatchingUpTest, AnswersWaitForUpdatesThatTheBackupLacksAndNotForTheState) {
  EXPECT_TRUE(Answers());
  replicator_.Send(Replicator::Component::kShard, Mean(1024));
  EXPECT_TRUE(Answers());
  replicator_.Send(Replicator::Component::kShard, Mean(1024));
  bool told = false;
  replicator_.WhenReplicated([&told](const absl::Status&) { told = true; });
  EXPECT_FALSE(told) << "8 KiB are outstanding";
  backup_.Hold();
  EXPECT_TRUE(told);
}

TEST_F(CatchingUpTest, AStreamThatEndsEarlyIsNotRepeatedAtOnce) {
  PassWithBeats(seconds(10));
  EXPECT_EQ(backup_.dials(), 1);
  backup_.Break(absl::ResourceExhaustedError("no memory"));
  replicator_.Step();
  for (int second = 0; second < 9; ++second) {
    clock_.Advance(seconds(1));
    replicator_.Step();
  }
  EXPECT_EQ(backup_.dials(), 1) << "the state would be sent again";
  clock_.Advance(seconds(2));
  replicator_.Step();
  EXPECT_EQ(backup_.dials(), 2);
}

TEST_F(CatchingUpTest, ABackupMayTakeTimeForTheState) {
  clock_.Advance(seconds(11));
  replicator_.Step();
  EXPECT_TRUE(backup_.is_dialed());
  clock_.Advance(seconds(2));
  replicator_.Step();
  EXPECT_FALSE(backup_.is_dialed()) << "every wait has a limit";
}

TEST(ReplicatorOfLargeValues, ABackupThatIsAllocatingGetsMoreTime) {
  test::FakeClock clock;
  Backup backup;
  Replicator replicator({.shard = "ps/0",
                         .backup = "ps/1 at host:2",
                         .origin = {},
                         .dial = [&](ReplicationStreamHandler& handler) { return backup.Dial(handler); },
                         .capture = [] {},
                         .allocating = seconds(60),
                         .clock = &clock});
  replicator.Start();
  replicator.Step();
  clock.Advance(seconds(60));
  replicator.Step();
  EXPECT_TRUE(backup.is_dialed());
  clock.Advance(seconds(5));
  replicator.Step();
  EXPECT_FALSE(backup.is_dialed()) << "every wait has a limit";
}

}  // namespace
}  // namespace cairn::ps

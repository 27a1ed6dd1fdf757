#include "client/training/snapshot_saver.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/unit/client/scripted_exchange.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SnapshotSaverTest : public testing::Test {
 protected:
  struct Intervals {
    int64_t updates = 0;
    std::chrono::seconds time{};
  };
  void Start(const Intervals& every, int64_t version = 0) {
    saver_.emplace(SnapshotSaver::Options{
        .every_updates = every.updates,
        .every = every.time,
        .clock = clock_,
        .save = [this](const TakenSnapshot& taken) { return save_(taken.version); },
        .report = [this](const absl::Status& status) { reports_.emplace_back(status.message()); },
        .stopped = [this] { return stopped_; }});
    saver_->CountFrom(version);
  }
  void StepTo(int64_t version) {
    steps_.at = version;
    saver_->AfterStep(control_, version);
  }
  absl::Status SaveNow(Duration limit = std::chrono::seconds(20)) {
    return saver_->SaveNow(control_, steps_.version(), limit);
  }
  // Steps to `versions`, each after the snapshot of the previous one has been saved. Returns the versions of
  // snapshots that were due.
  std::vector<int64_t> DueAt(const std::vector<int64_t>& versions) {
    std::vector<int64_t> due;
    for (const int64_t version : versions) {
      const int64_t newest = saver_->newest_version();
      StepTo(version);
      if (saver_->newest_version() == newest) continue;
      due.push_back(version);
      EXPECT_EQ(SaveNow(), absl::OkStatus());
    }
    return due;
  }

  Script script_;
  ScriptedSteps steps_{script_};
  ScriptedControl control_{script_, steps_};
  test::FakeClock clock_;
  std::vector<std::string> reports_;
  std::function<absl::Status(int64_t)> save_ = [](int64_t) { return absl::OkStatus(); };
  bool stopped_ = false;
  std::optional<SnapshotSaver> saver_;
};

TEST_F(SnapshotSaverTest, UpdatesAreCountedInMultiplesOfTheInterval) {
  Start({.updates = 4});
  EXPECT_THAT(DueAt({1, 3, 4, 5, 7, 9, 11, 12}), ElementsAre(4, 9, 12));
}

TEST_F(SnapshotSaverTest, UpdatesAreCountedFromTheVersionAtWhichTrainingBegins) {
  Start({.updates = 4}, /*version=*/7);
  saver_->CountFrom(0);
  EXPECT_THAT(DueAt({7, 8, 9}), ElementsAre(8));
}

TEST_F(SnapshotSaverTest, TimeCountsFromTheLastSnapshotAndOnlyIfThereIsAnUpdate) {
  Start({.time = std::chrono::seconds(10)});
  clock_.Advance(std::chrono::seconds(9));
  EXPECT_THAT(DueAt({1}), IsEmpty());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_THAT(DueAt({1, 2}), ElementsAre(1));
  clock_.Advance(std::chrono::seconds(10));
  EXPECT_THAT(DueAt({1, 2}), ElementsAre(2));
}

TEST_F(SnapshotSaverTest, WithoutIntervalsNoSnapshotIsDue) {
  Start({});
  clock_.Advance(std::chrono::hours(1));
  EXPECT_THAT(DueAt({1, 1000}), IsEmpty());
}

TEST_F(SnapshotSaverTest, OneIsTakenAtATime) {
  test::Gate gate;
  save_ = [&gate](int64_t) { return gate.Wait() ? absl::OkStatus() : absl::DeadlineExceededError("gate"); };
  Start({.updates = 1});
  StepTo(1);
  StepTo(2);
  EXPECT_EQ(script_.Calls(), "snapshot");
  EXPECT_EQ(SaveNow(std::chrono::milliseconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Open();
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_EQ(saver_->newest_version(), 2);
  EXPECT_EQ(script_.Calls(), "snapshot");
}

TEST_F(SnapshotSaverTest, TheProgramMayEndAWaitAndTheSnapshotIsSaved) {
  test::Gate gate;
  bool saved = false;
  save_ = [&](int64_t) {
    saved = gate.Wait();
    return absl::OkStatus();
  };
  Start({.updates = 1});
  StepTo(1);
  stopped_ = true;
  EXPECT_EQ(SaveNow().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(saver_->AwaitIdle(TimePoint::max()).code(), absl::StatusCode::kCancelled);
  gate.Open();
  stopped_ = false;
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_TRUE(saved);
  EXPECT_EQ(script_.Calls(), "snapshot");
}

TEST_F(SnapshotSaverTest, AFailureToTakeOneIsReportedAndTheNextStepTriesAgain) {
  Start({.updates = 2});
  script_.Fail("snapshot", absl::UnavailableError("ps/0 is away"));
  EXPECT_THAT(DueAt({2, 3}), ElementsAre(3));
  EXPECT_THAT(reports_, ElementsAre("ps/0 is away"));
}

TEST_F(SnapshotSaverTest, AVersionIsSavedOnce) {
  Start({});
  steps_.at = 3;
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "snapshot");
}

TEST_F(SnapshotSaverTest, SaveNowTakesAnotherOneIfABackupHasTheState) {
  std::atomic<int> saves{0};
  save_ = [&saves](int64_t) { return ++saves == 1 ? absl::UnavailableError("lost") : absl::OkStatus(); };
  Start({});
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "snapshot snapshot");
}

TEST_F(SnapshotSaverTest, SaveNowTakesAnotherOneIfTheLastOneWasNotReadInTime) {
  std::atomic<int> saves{0};
  save_ = [&saves](int64_t) { return ++saves == 1 ? absl::DeadlineExceededError("slow") : absl::OkStatus(); };
  Start({.updates = 1});
  StepTo(1);
  EXPECT_EQ(SaveNow(), absl::OkStatus());
  EXPECT_EQ(script_.Calls(), "snapshot snapshot");
}

TEST_F(SnapshotSaverTest, SaveNowReturnsTheErrorOfSaving) {
  save_ = [](int64_t) { return absl::ResourceExhaustedError("the disk is full"); };
  Start({});
  EXPECT_EQ(SaveNow(), absl::ResourceExhaustedError("the disk is full"));
}

}  // namespace
}  // namespace cairn::client

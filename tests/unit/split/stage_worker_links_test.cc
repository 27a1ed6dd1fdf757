#include "worker/split/stage_worker_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::split {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A stage worker that answers handshakes with `greeted`, and records what is sent to it.
struct FakeStageWorker {
  absl::Status greeted;
  int opened = 0;
  std::vector<v1::RingHeader> received;
  allreduce::RingHandler* handler = nullptr;  // of the last stream
};

class FakePeer final : public allreduce::RingPeer {
 public:
  explicit FakePeer(FakeStageWorker& to) : to_(to) {}
  absl::Status Greet(const v1::GreetRequest&, v1::GreetResponse*, std::chrono::milliseconds) override {
    return to_.greeted;
  }
  std::unique_ptr<allreduce::RingStream> Open(const v1::GreetResponse&,
                                              allreduce::RingHandler& handler) override {
    struct Stream final : allreduce::RingStream {
      explicit Stream(FakeStageWorker& to_in) : to(to_in) {}
      void Send(const v1::RingHeader& header, net::FloatSpans, const std::shared_ptr<const void>&) override {
        to.received.push_back(header);
      }
      void End(const absl::Status&) override {}
      FakeStageWorker& to;
    };
    ++to_.opened;
    to_.handler = &handler;
    return std::make_unique<Stream>(to_);
  }

 private:
  FakeStageWorker& to_;
};

class StageWorkerLinksTest : public testing::Test, public StageWorkerLinks::Handler {
 protected:
  void Make() {
    StageWorkerLinks::Options options = {.incarnation = 1, .plan = {}, .stage_workers = {}};
    for (int i = 0; i < 2; ++i) {
      options.stage_workers.push_back({.name = absl::StrCat("worker/", i + 1),
                                       .worker = i + 1,
                                       .peer = std::make_unique<FakePeer>(stage_workers_[i])});
    }
    links_.emplace(std::move(options), *this);
  }
  absl::Status ReachNow() { return links_->Reach(std::chrono::steady_clock::now()); }

  FakeStageWorker stage_workers_[2];
  std::vector<std::string> lost_;
  int frames_ = 0;
  std::optional<StageWorkerLinks> links_;

 private:
  absl::Status OnFrame(StageWorkerLinks::Link&, const v1::RingHeader&, net::Payload) override {
    ++frames_;
    return absl::OkStatus();
  }
  void OnLost(const StageWorkerLinks::Link&, const absl::Status& why) override {
    lost_.emplace_back(why.message());
  }
};

TEST_F(StageWorkerLinksTest, AStageWorkerThatIsNotReachedIsNamed) {
  Make();
  stage_workers_[1].greeted = absl::UnavailableError("connection refused");
  const absl::Status reached = ReachNow();
  EXPECT_EQ(reached.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(reached.message(), HasSubstr("worker/2 was not reached in time"));
}

TEST_F(StageWorkerLinksTest, ARefusalEndsTheAttempts) {
  Make();
  stage_workers_[0].greeted = absl::FailedPreconditionError("another model");
  EXPECT_EQ(links_->Reach(std::chrono::steady_clock::now() + std::chrono::seconds(60)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(StageWorkerLinksTest, AClosedStreamIsLostOnceAndNamesTheStep) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  links_->SetStep(7);
  stage_workers_[0].handler->OnClosed(absl::UnavailableError("gone"));
  links_->Lose(*links_->Get(0), absl::AbortedError("again"));
  EXPECT_THAT(lost_, ElementsAre("lost worker/1 in step 7: gone"));
  EXPECT_TRUE(absl::IsAborted(links_->lost()));
}

TEST_F(StageWorkerLinksTest, OnlyALostStageWorkerIsReachedAgain) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  links_->Get(0)->known[3] = nullptr;
  stage_workers_[0].handler->OnClosed(absl::UnavailableError("gone"));
  ASSERT_TRUE(ReachNow().ok());
  EXPECT_EQ(stage_workers_[0].opened, 2);
  EXPECT_EQ(stage_workers_[1].opened, 1);
  EXPECT_TRUE(links_->lost().ok());
  EXPECT_THAT(links_->Get(0)->known, IsEmpty()) << "another process may have taken its task";
}

TEST_F(StageWorkerLinksTest, AHeartbeatIsNoFrameOfTheHandler) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  v1::RingHeader beat, split;
  beat.mutable_beat();
  split.mutable_split();
  EXPECT_TRUE(stage_workers_[0].handler->OnFrame(beat, {}).ok());
  EXPECT_EQ(frames_, 0);
  EXPECT_TRUE(stage_workers_[0].handler->OnFrame(split, {}).ok());
  EXPECT_EQ(frames_, 1);
}

TEST_F(StageWorkerLinksTest, AFrameOnALostLinkIsRefused) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  links_->Lose(*links_->Get(0), absl::AbortedError("lost"));
  v1::RingHeader split;
  split.mutable_split();
  EXPECT_TRUE(absl::IsAborted(stage_workers_[0].handler->OnFrame(split, {})));
  EXPECT_EQ(frames_, 0);
}

TEST_F(StageWorkerLinksTest, ABeatGoesToEveryStageWorkerThatIsNotLost) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  links_->Lose(*links_->Get(0), absl::AbortedError("lost"));
  links_->Beat();
  EXPECT_FALSE(stage_workers_[0].received.back().has_beat());
  EXPECT_TRUE(stage_workers_[1].received.back().has_beat());
}

TEST_F(StageWorkerLinksTest, SendLastDoesNotWaitForALostStageWorker) {
  Make();
  ASSERT_TRUE(ReachNow().ok());
  for (size_t i = 0; i < 2; ++i) links_->Lose(*links_->Get(i), absl::AbortedError("lost"));
  links_->SendLast({}, std::chrono::hours(1));
  EXPECT_TRUE(stage_workers_[1].received.back().has_split());
}

}  // namespace
}  // namespace cairn::split

#include "worker/peer/greeting.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

// Answers the handshakes with these statuses in turn, and with the last one from then on. Answer number i is
// from ring epoch i.
class Answers final : public RingPeer {
 public:
  explicit Answers(std::vector<absl::Status> statuses) : statuses_(std::move(statuses)) {}
  absl::Status Greet(const v1::GreetRequest&, v1::GreetResponse* response,
                     std::chrono::milliseconds) override {
    response->set_ring_epoch(greeted);
    const size_t index = std::min(static_cast<size_t>(greeted++), statuses_.size() - 1);
    return statuses_[index];
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse&, RingHandler&) override { return nullptr; }

  int greeted = 0;

 private:
  const std::vector<absl::Status> statuses_;
};

class GreetingTest : public testing::Test {
 protected:
  absl::StatusOr<v1::GreetResponse> Greet(Answers& peer, TimePoint deadline = TimePoint::max()) {
    return GreetUntilAnswered(
        {.peer = peer,
         .name = name_,
         .request = request_,
         .deadline = deadline,
         .say = say_,
         .check = [this] { return fault_; },
         .judge = [this](const v1::GreetResponse& response) { return judge_(response); },
         .wait = [this](TimePoint) { ++waits_; }});
  }

  const std::string name_ = "worker/1 at b:1";
  const v1::GreetRequest request_;
  const std::function<void(const std::string&)> say_;
  absl::Status fault_;
  std::function<absl::StatusOr<std::string>(const v1::GreetResponse&)> judge_ = [](const v1::GreetResponse&) {
    return "";
  };
  int waits_ = 0;
};

TEST_F(GreetingTest, AnUnreachableWorkerIsGreetedAgainAfterAWait) {
  Answers peer({absl::UnavailableError("refused"), absl::DeadlineExceededError("slow"), absl::OkStatus()});
  EXPECT_EQ(Greet(peer)->ring_epoch(), 2);
  EXPECT_EQ(waits_, 2);
}

TEST_F(GreetingTest, ARefusalEndsTheAttemptsAndNamesTheWorker) {
  Answers peer({absl::FailedPreconditionError("another job")});
  EXPECT_EQ(Greet(peer).status(), absl::FailedPreconditionError("worker/1 at b:1: another job"));
}

TEST_F(GreetingTest, TheDeadlineNamesTheWorkerAndTheReason) {
  Answers peer({absl::UnavailableError("connection refused")});
  const absl::Status late = Greet(peer, std::chrono::steady_clock::now()).status();
  EXPECT_TRUE(absl::IsUnavailable(late));
  EXPECT_THAT(std::string(late.message()), HasSubstr("worker/1 at b:1 was not reached in time: "));
}

TEST_F(GreetingTest, AnAnswerThatCannotBeUsedIsAskedForAgain) {
  Answers peer({absl::OkStatus()});
  judge_ = [](const v1::GreetResponse& response) -> absl::StatusOr<std::string> {
    return response.ring_epoch() < 3 ? "it is still behind" : "";
  };
  EXPECT_EQ(Greet(peer)->ring_epoch(), 3);
  judge_ = [](const v1::GreetResponse&) -> absl::StatusOr<std::string> {
    return absl::AbortedError("ahead");
  };
  EXPECT_EQ(Greet(peer).status(), absl::AbortedError("ahead"));
}

TEST_F(GreetingTest, AFaultIsNoticedBeforeTheNextAttempt) {
  Answers peer({absl::OkStatus()});
  fault_ = absl::CancelledError("stopped");
  EXPECT_EQ(Greet(peer).status(), fault_);
  EXPECT_EQ(peer.greeted, 0);
}

}  // namespace
}  // namespace cairn::allreduce

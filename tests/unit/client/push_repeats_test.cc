#include "client/training/push_repeats.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PushRepeatsTest : public testing::Test {
 protected:
  PushRepeats Repeats(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    return PushRepeats(*connection_, {.task = "worker/0",
                                      .step = "step 7",
                                      .deadline = std::chrono::steady_clock::now() + limit,
                                      .limit = limit,
                                      .failure = [this] { return failure_; }});
  }
  // Runs with a wait that finds the elements of `found` one after the other, and then that all have answered.
  absl::Status Run(PushRepeats repeats, std::vector<Unanswered> found, const absl::Status& repeated = {}) {
    size_t next = 0;
    const absl::StatusOr<bool> answered = repeats.Run(
        TimePoint::max(),
        [&](TimePoint*) -> absl::StatusOr<Unanswered> {
          return next < found.size() ? found[next++] : Unanswered();
        },
        [&](int server) {
          repeated_.push_back(server);
          return repeated;
        });
    EXPECT_TRUE(!answered.ok() || *answered);
    return answered.status();
  }
  static Unanswered Broken(int server) {
    return {.failed = {server}, .failure = absl::UnavailableError("the stream broke")};
  }

  test::InProcessCluster cluster_{{.servers = 2}};
  std::vector<std::string> reports_;
  const std::unique_ptr<Connection> connection_ =
      Connection::Open(
          cluster_.Stubs("worker/0"),
          {.task = "worker/0", .say = [this](const std::string& text) { reports_.push_back(text); }})
          .value();
  absl::Status failure_;
  std::vector<int> repeated_;
};

TEST_F(PushRepeatsTest, AnsweredPushesAreNotRepeated) {
  EXPECT_EQ(Run(Repeats(), {}), absl::OkStatus());
  EXPECT_THAT(repeated_, IsEmpty());
}

TEST_F(PushRepeatsTest, ABrokenStreamIsReportedOnceAndItsPushRepeated) {
  EXPECT_EQ(Run(Repeats(), {Broken(1), Broken(0)}), absl::OkStatus());
  EXPECT_THAT(repeated_, ElementsAre(1, 0));
  EXPECT_THAT(reports_, ElementsAre("step 7: the stream broke; the push will be sent again"));
}

TEST_F(PushRepeatsTest, AnErrorOfTheServerIsFinal) {
  const absl::Status error = absl::InvalidArgumentError("the gradient is nan");
  EXPECT_EQ(Run(Repeats(), {{.failed = {0}, .failure = error}}), error);
  EXPECT_THAT(repeated_, IsEmpty());
}

TEST_F(PushRepeatsTest, AWorkerThatCannotGoOnRepeatsNothing) {
  failure_ = absl::AbortedError("the lease has expired");
  EXPECT_EQ(Run(Repeats(), {Broken(0)}), failure_);
  EXPECT_THAT(repeated_, IsEmpty());
}

TEST_F(PushRepeatsTest, AfterTheDeadlineTheServerThatIsDownIsNamed) {
  const std::vector<Unanswered> found(10000, Broken(1));
  const absl::Status status =
      Run(Repeats(std::chrono::milliseconds(100)), found, absl::UnavailableError("Connection refused"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps/1 at host1:2222 is down or unreachable"));
}

TEST_F(PushRepeatsTest, AWaitThatEndsEarlyGoesOnWithTheNextCall) {
  PushRepeats repeats = Repeats();
  Unanswered found = {.waiting = {1}};
  const auto run = [&] {
    return repeats.Run(
        std::chrono::steady_clock::now(), [&](TimePoint*) -> absl::StatusOr<Unanswered> { return found; },
        [&](int server) {
          repeated_.push_back(server);
          return absl::OkStatus();
        });
  };
  EXPECT_FALSE(*run());
  found = Broken(1);
  EXPECT_FALSE(*run()) << "the time is over once the push has been repeated";
  EXPECT_THAT(repeated_, ElementsAre(1));
  found = {};
  EXPECT_TRUE(*run());
}

TEST_F(PushRepeatsTest, ARepeatThatIsRefusedEndsTheStep) {
  const absl::Status lost = absl::AbortedError("ps/0 has been restarted");
  EXPECT_EQ(Run(Repeats(), {Broken(0)}, lost), lost);
}

}  // namespace
}  // namespace cairn::client

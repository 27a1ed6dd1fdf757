#include "client/training/joined_job.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::client {
namespace {

class JoinedJobTest : public testing::Test {
 protected:
  // Declares the job as its chief, and learns it.
  void Learn() {
    const v1::Job job = test::JobFor(cluster_, toy_);
    const std::string task = "worker/0";
    const IntendedJob intended = {.task = task, .job = job, .variables = toy_.variables};
    FirstValues first(toy_.initial);
    int64_t begun = -1;
    ASSERT_EQ(InitialiseServers(*connection_, intended, /*split_bytes=*/0, first, &begun), absl::OkStatus());
    job_.Learn(AwaitJob(*connection_, intended).value());
  }

  test::InProcessCluster cluster_;
  const test::ToyJob toy_{1, {{"a", {2}, {1, 2}}}};
  const std::unique_ptr<Connection> connection_ =
      Connection::Open(cluster_.Stubs("worker/0"), {.task = "worker/0"}).value();
  int changes_ = 0;
  JoinedJob job_{*connection_,
                 {.worker = 0,
                  .task = "worker/0",
                  .step_timeout = std::chrono::seconds(20),
                  .report = nullptr,
                  .changed = [this] { ++changes_; }}};
};

TEST_F(JoinedJobTest, AMemberHasAnIncarnationAndAStartingPoint) {
  Learn();
  EXPECT_FALSE(job_.was_member());
  const auto admission = job_.Join();
  ASSERT_TRUE(admission.ok()) << admission.status();
  EXPECT_EQ(admission->start.position, 0);
  EXPECT_TRUE(job_.was_member());
  EXPECT_EQ(job_.worker(), 0);
  job_.StopHeartbeats();
}

TEST_F(JoinedJobTest, MarkersAreUnique) {
  const std::string first = job_.NextMarker();
  EXPECT_NE(job_.NextMarker(), first);
}

TEST_F(JoinedJobTest, PersistRepeatsWhatMaySucceedLater) {
  int attempts = 0;
  const auto attempt = [&] { return ++attempts < 3 ? absl::UnavailableError("not yet") : absl::OkStatus(); };
  EXPECT_EQ(job_.Persist(attempt), absl::OkStatus());
  EXPECT_EQ(attempts, 3);
}

TEST_F(JoinedJobTest, PersistDoesNotRepeatAnErrorOfTheCaller) {
  const absl::Status error = absl::InvalidArgumentError("no");
  EXPECT_EQ(job_.Persist([&] { return error; }), error);
}

TEST_F(JoinedJobTest, PersistEndsWhenAServerHasBeenRestarted) {
  cluster_.Restart(0);
  EXPECT_EQ(job_.Persist([] { return absl::UnavailableError("broken"); }).code(), absl::StatusCode::kAborted);
}

TEST_F(JoinedJobTest, AnInterruptEndsWaits) {
  const absl::Status reason = absl::CancelledError("stopped by a signal");
  job_.Interrupt(reason);
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(job_.failure(), reason);
  EXPECT_EQ(job_.Persist([] { return absl::UnavailableError("not yet"); }), reason);
}

}  // namespace
}  // namespace cairn::client

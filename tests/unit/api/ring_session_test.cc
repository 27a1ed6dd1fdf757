#include "api/ring_session.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"

namespace cairn::api {
namespace {

using test::Gate;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Addresses of this host on which nothing listens.
std::vector<std::string> FreeAddresses(size_t count) {
  std::vector<int> probes;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < count; ++i) {
    const int probe = probes.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size), 0);
    addresses.push_back(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  }
  for (const int probe : probes) close(probe);
  return addresses;
}

// Workers in this process, each with a state of its own.
class RingSessionTest : public testing::Test {
 protected:
  struct Program {
    std::unique_ptr<RingSession> session;
    std::string state;
    bool loaded = false;
  };

  RingSessionTest() : addresses_(FreeAddresses(2)), programs_(2) {
    for (size_t i = 0; i < 2; ++i) programs_[i].state = absl::StrCat("first of ", i);
  }

  absl::Status Open(size_t worker, const std::string& description = "sum") {
    Program& program = programs_[worker];
    AllReduceOptions options = {.workers = addresses_,
                                .worker = static_cast<int>(worker),
                                .description = description,
                                .save =
                                    [&program](std::string* state) {
                                      *state = program.state;
                                      return Status();
                                    },
                                .load =
                                    [&program](const std::string& state) {
                                      program.state = state;
                                      program.loaded = true;
                                      return Status();
                                    }};
    options.connect.connect_timeout = connect_timeout_;
    if (interruptible_) {
      options.connect.keep_waiting = [&keeps_waiting = keeps_waiting_[worker]] {
        return keeps_waiting.load();
      };
    }
    options.step_timeout = step_timeout_;
    options.lease = lease_;
    auto opened = RingSession::Open(Job{.variables = {{.name = "a", .shape = {2}}, {.name = "b"}}}, options);
    if (opened.ok()) program.session = *std::move(opened);
    return opened.status();
  }
  void InParallel(const std::function<void(size_t)>& body) {
    std::vector<Thread> threads;
    for (size_t i = 0; i < programs_.size(); ++i) threads.emplace_back("worker", [&body, i] { body(i); });
  }
  void OpenAll() {
    InParallel([this](size_t worker) { EXPECT_EQ(Open(worker), absl::OkStatus()); });
  }
  RingSession& session(size_t worker) { return *programs_[worker].session; }
  // A step with gradients of `value`; returns the mean.
  std::vector<float> Step(size_t worker, float value, int64_t examples) {
    for (float& gradient : session(worker).gradients()) gradient = value;
    EXPECT_EQ(session(worker).BeginStep(examples, false), absl::OkStatus());
    EXPECT_EQ(session(worker).Announce(1), absl::OkStatus());
    const auto step = session(worker).FinishStep();
    EXPECT_EQ(step.status(), absl::OkStatus());
    const auto mean = session(worker).mean().values;
    return {mean.begin(), mean.end()};
  }
  // The worker's process is lost, and another one takes its place.
  void Lose(size_t worker) {
    programs_[worker].session = nullptr;
    programs_[worker].state = "a new process";
    programs_[worker].loaded = false;
  }
  // The failure of a step of worker 0 while worker 1 is lost.
  absl::Status FailedStep() {
    EXPECT_EQ(session(0).BeginStep(1, false), absl::OkStatus());
    return session(0).FinishStep().status();
  }
  void EndAll() {
    InParallel([this](size_t worker) {
      absl::StatusOr<AllReduceStep> step;
      do {
        ASSERT_EQ(session(worker).BeginStep(0, /*done=*/true), absl::OkStatus());
        step = session(worker).FinishStep();
        ASSERT_EQ(step.status(), absl::OkStatus());
      } while (!step->done);
      EXPECT_EQ(session(worker).End(), absl::OkStatus());
    });
  }

  std::vector<std::string> addresses_;
  std::vector<Program> programs_;
  bool interruptible_ = false;
  std::array<std::atomic<bool>, 2> keeps_waiting_{true, true};
  std::chrono::seconds connect_timeout_{60};
  std::chrono::milliseconds step_timeout_ = std::chrono::seconds(60), lease_ = std::chrono::seconds(60);
};

TEST_F(RingSessionTest, AllWorkersGetTheStateOfTheChiefAndTheWeightedMean) {
  OpenAll();
  EXPECT_EQ(programs_[1].state, "first of 0");
  EXPECT_FALSE(programs_[0].loaded);
  std::vector<std::vector<float>> means(2);
  InParallel([&](size_t worker) {
    means[worker] = Step(worker, worker == 0 ? 1.0f : 5.0f, worker == 0 ? 3 : 1);
    EXPECT_EQ(session(worker).AwaitSent(), absl::OkStatus());
  });
  EXPECT_THAT(means, Each(ElementsAre(2, 2, 2)));
  EXPECT_EQ(session(1).version(), 1);
  EndAll();
}

TEST_F(RingSessionTest, AWorkerThatIsDoneTakesPartUntilAllAre) {
  OpenAll();
  InParallel([&](size_t worker) {
    for (int step = 0; step < 3; ++step) {
      if (worker == 1) {
        EXPECT_THAT(Step(1, 4, 2), ElementsAre(4, 4, 4));
        continue;
      }
      ASSERT_EQ(session(0).BeginStep(0, /*done=*/true), absl::OkStatus());
      EXPECT_EQ(session(0).FinishStep()->examples, 2);
      EXPECT_EQ(session(0).mean().values[0], 4);
    }
  });
  EXPECT_EQ(session(0).End().code(), absl::StatusCode::kFailedPrecondition) << "not all are done";
  EndAll();
}

TEST_F(RingSessionTest, AStepThatIsTakenBackIsRepeatedByAll) {
  OpenAll();
  InParallel([&](size_t worker) {
    if (worker == 0) {
      bool loaded = true;
      for (float& gradient : session(0).gradients()) gradient = 7;
      ASSERT_EQ(session(0).BeginStep(9, false), absl::OkStatus());
      ASSERT_EQ(session(0).Announce(1), absl::OkStatus());
      ASSERT_EQ(session(0).CancelStep(&loaded), absl::OkStatus());
      EXPECT_FALSE(loaded);
      EXPECT_THAT(Step(0, 1, 1), ElementsAre(2, 2, 2));
      return;
    }
    for (float& gradient : session(1).gradients()) gradient = 3;
    ASSERT_EQ(session(1).BeginStep(1, false), absl::OkStatus());
    const absl::Status failure = session(1).FinishStep().status();
    EXPECT_THAT(std::string(failure.message()), HasSubstr("worker/0 has taken back its gradient"));
    bool loaded = true;
    ASSERT_EQ(session(1).Recover(failure, &loaded), absl::OkStatus());
    EXPECT_FALSE(loaded);
    EXPECT_THAT(Step(1, 3, 1), ElementsAre(2, 2, 2));
  });
  EndAll();
}

TEST_F(RingSessionTest, AStepThatTakesTooLongGoesOn) {
  step_timeout_ = std::chrono::milliseconds(200);
  OpenAll();
  Gate late;
  InParallel([&](size_t worker) {
    if (worker == 1) {
      ASSERT_TRUE(late.Wait());
      EXPECT_THAT(Step(1, 3, 1), ElementsAre(2, 2, 2));
      return;
    }
    for (float& gradient : session(0).gradients()) gradient = 1;
    ASSERT_EQ(session(0).BeginStep(1, false), absl::OkStatus());
    const absl::Status failure = session(0).FinishStep().status();
    EXPECT_EQ(failure.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(failure.message()), HasSubstr("no progress in the time limit of a step"));
    EXPECT_EQ(session(0).BeginStep(1, false).code(), absl::StatusCode::kFailedPrecondition);
    late.Open();
    absl::StatusOr<AllReduceStep> step;
    for (int i = 0; i < 100 && !step.ok(); ++i) step = session(0).FinishStep();
    ASSERT_EQ(step.status(), absl::OkStatus());
    EXPECT_THAT(session(0).mean().values, ElementsAre(2, 2, 2));
  });
}

TEST_F(RingSessionTest, AnotherGroupMayFollowWhileTheObjectsOfTheFirstExist) {
  OpenAll();
  EndAll();
  std::vector<std::unique_ptr<RingSession>> ended;
  for (Program& program : programs_) ended.push_back(std::move(program.session));
  OpenAll();
  InParallel([&](size_t worker) { EXPECT_THAT(Step(worker, 1, 1), ElementsAre(1, 1, 1)); });
  EndAll();
}

TEST_F(RingSessionTest, OptionsThatCannotBeAreRefusedByName) {
  lease_ = std::chrono::seconds(0);
  EXPECT_THAT(std::string(Open(0).message()), HasSubstr("AllReduceOptions::lease: 0 ms, must be above 0"));
  lease_ = std::chrono::seconds(60);
  step_timeout_ = std::chrono::milliseconds(-1);
  EXPECT_THAT(std::string(Open(0).message()), HasSubstr("AllReduceOptions::step_timeout: -1 ms"));
  step_timeout_ = std::chrono::seconds(60);
  addresses_[1] = "here";
  EXPECT_THAT(std::string(Open(0).message()), HasSubstr("AllReduceOptions::workers: worker/1"));
}

TEST_F(RingSessionTest, AWorkerThatReturnsTakesOverTheStateOfTheOthers) {
  OpenAll();
  InParallel([&](size_t worker) {
    Step(worker, 1, 1);
    programs_[worker].state = "after 1";
  });
  Lose(0);
  InParallel([&](size_t worker) {
    if (worker == 0) {
      ASSERT_EQ(Open(0), absl::OkStatus());
    } else {
      ASSERT_EQ(session(1).BeginStep(1, false), absl::OkStatus());
      bool loaded = true;
      ASSERT_EQ(session(1).Recover(session(1).FinishStep().status(), &loaded), absl::OkStatus());
      EXPECT_FALSE(loaded);
    }
    EXPECT_THAT(Step(worker, worker == 0 ? 3.0f : 5.0f, 1), ElementsAre(4, 4, 4));
  });
  EXPECT_EQ(programs_[0].state, "after 1");
  EXPECT_EQ(session(0).version(), 2);
  EndAll();
}

TEST_F(RingSessionTest, ARecoveryThatTheProgramInterruptedBeginsAgainWithTheNextStep) {
  interruptible_ = true;
  OpenAll();
  InParallel([&](size_t worker) { Step(worker, 1, 1); });
  programs_[0].state = "after 1";
  Lose(1);
  bool loaded = true;
  for (int interrupted = 0; interrupted < 2; ++interrupted) {
    keeps_waiting_[0] = true;
    const absl::Status failure = FailedStep();
    EXPECT_EQ(failure.code(), absl::StatusCode::kAborted) << failure;
    keeps_waiting_[0] = false;
    EXPECT_EQ(session(0).Recover(failure, &loaded).code(), absl::StatusCode::kCancelled);
  }
  keeps_waiting_[0] = true;
  InParallel([&](size_t worker) {
    if (worker == 1) {
      ASSERT_EQ(Open(1), absl::OkStatus());
    } else {
      ASSERT_EQ(session(0).Recover(FailedStep(), &loaded), absl::OkStatus());
      EXPECT_FALSE(loaded);
    }
    EXPECT_THAT(Step(worker, worker == 0 ? 3.0f : 5.0f, 1), ElementsAre(4, 4, 4));
  });
  EXPECT_EQ(programs_[1].state, "after 1");
  EndAll();
}

TEST_F(RingSessionTest, ARecoveryThatTookTooLongBeginsAgainWithTheNextStep) {
  connect_timeout_ = std::chrono::seconds(2);
  OpenAll();
  InParallel([&](size_t worker) { Step(worker, 1, 1); });
  Lose(1);
  bool loaded = true;
  EXPECT_EQ(session(0).Recover(FailedStep(), &loaded).code(), absl::StatusCode::kUnavailable);
  connect_timeout_ = std::chrono::seconds(60);
  InParallel([&](size_t worker) {
    absl::Status joined = absl::UnavailableError("not yet");
    for (int i = 0; i < 20 && absl::IsUnavailable(joined); ++i) {
      joined = worker == 1 ? Open(1) : session(0).Recover(FailedStep(), &loaded);
    }
    ASSERT_EQ(joined, absl::OkStatus());
    EXPECT_THAT(Step(worker, worker == 0 ? 3.0f : 5.0f, 1), ElementsAre(4, 4, 4));
  });
  EndAll();
}

TEST_F(RingSessionTest, AWorkerThatStoppedWaitingForTheStatesOfTheOthersJoinsThemLater) {
  interruptible_ = true;
  OpenAll();
  Gate begun, interrupted;
  InParallel([&](size_t worker) {
    bool loaded = true;
    if (worker == 1) {  // takes back its step, and is late to form the ring
      keeps_waiting_[1] = false;
      ASSERT_EQ(session(1).BeginStep(1, false), absl::OkStatus());
      ASSERT_TRUE(begun.Wait());
      EXPECT_EQ(session(1).CancelStep(&loaded).code(), absl::StatusCode::kCancelled);
      keeps_waiting_[1] = true;
      interrupted.Open();
      ASSERT_EQ(session(1).BeginStep(1, false), absl::OkStatus());
      const absl::Status failure = session(1).FinishStep().status();
      EXPECT_EQ(failure.code(), absl::StatusCode::kAborted) << failure;
      ASSERT_EQ(session(1).Recover(failure, &loaded), absl::OkStatus());
    } else {
      ASSERT_EQ(session(0).BeginStep(1, false), absl::OkStatus());
      begun.Open();
      const absl::Status failure = session(0).FinishStep().status();
      ASSERT_TRUE(interrupted.Wait());
      ASSERT_EQ(session(0).Recover(failure, &loaded), absl::OkStatus());
    }
    absl::Status status;
    do {
      if (absl::IsAborted(status)) {
        ASSERT_EQ(session(worker).Recover(status, &loaded), absl::OkStatus());
      }
      for (float& gradient : session(worker).gradients()) gradient = worker == 0 ? 3 : 5;
      ASSERT_EQ(session(worker).BeginStep(1, false), absl::OkStatus());
      status = session(worker).FinishStep().status();
    } while (absl::IsAborted(status));
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(session(worker).mean().values[0], 4);
  });
  EndAll();
}

TEST_F(RingSessionTest, WorkersWithAnotherDescriptionAreRefused) {
  connect_timeout_ = std::chrono::seconds(3);
  std::vector<absl::Status> results(2);
  InParallel([&](size_t worker) { results[worker] = Open(worker, worker == 0 ? "Adam" : "SGD"); });
  // The first one to learn it may have gone before the other one has asked.
  const absl::Status& first = absl::IsFailedPrecondition(results[0]) ? results[0] : results[1];
  EXPECT_EQ(first.code(), absl::StatusCode::kFailedPrecondition) << first;
  EXPECT_THAT(std::string(first.message()), HasSubstr("Adam"));
  EXPECT_FALSE(results[0].ok() || results[1].ok());
}

TEST_F(RingSessionTest, WrongUseIsNamed) {
  addresses_.resize(1);
  programs_.resize(1);
  EXPECT_THAT(std::string(Open(0).message()), "");
  EXPECT_THAT(std::string(session(0).Announce(0).message()), HasSubstr("no step is in progress"));
  EXPECT_THAT(std::string(session(0).BeginStep(-1, false).message()), HasSubstr("-1 examples"));
  ASSERT_EQ(session(0).BeginStep(1, false), absl::OkStatus());
  EXPECT_THAT(std::string(session(0).BeginStep(1, false).message()), HasSubstr("a step is in progress"));
  EXPECT_THAT(std::string(session(0).Announce(2).message()), HasSubstr("no variable 2"));
  ASSERT_EQ(session(0).Announce(0), absl::OkStatus());
  EXPECT_THAT(std::string(session(0).Announce(0).message()), HasSubstr("'a' has been sent already"));
  ASSERT_EQ(session(0).FinishStep().status(), absl::OkStatus());
  AllReduceOptions options = {.workers = {"127.0.0.1:1"}, .worker = 1};
  options.save = [](std::string*) { return Status(); };
  options.load = [](const std::string&) { return Status(); };
  EXPECT_THAT(std::string(RingSession::Open(Job{.variables = {{.name = "a"}}}, options).status().message()),
              HasSubstr("AllReduceOptions::worker: 1, must be in [0, 1)"));
}

}  // namespace
}  // namespace cairn::api

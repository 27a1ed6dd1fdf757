// Sessions on servers in this process.
#include "api/training_session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::api {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

// w = 1 2, b = 3; the learning rate is 1.
Job Toy(int workers = 1) {
  return {.variables = {{.name = "w", .shape = {2}}, {.name = "b"}},
          .optimizer = {.name = "SGD", .hyperparameters = {{"learning_rate", 1}}},
          .workers = workers,
          .updates = 100,
          .lease = std::chrono::seconds(30)};
}

class TrainingSessionTest : public testing::Test {
 protected:
  ~TrainingSessionTest() override { std::filesystem::remove_all(directory_); }

  SessionOptions Options(int worker = 0) {
    SessionOptions options;
    options.worker = worker;
    options.connect.connect_timeout = std::chrono::seconds(20);
    options.step_timeout = std::chrono::seconds(20);
    options.first_values = [](std::span<float> values) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
      return Status();
    };
    for (int server = 0; server < cluster_.num_servers(); ++server) {
      options.connect.servers.push_back("host:" + std::to_string(2222 + server));
    }
    return options;
  }
  absl::StatusOr<std::unique_ptr<TrainingSession>> TryOpen(const Job& job, const SessionOptions& options) {
    return TrainingSession::Open(job, options, [this](const ReachArgs& args) {
      return client::Connection::Open(
          cluster_.Stubs(args.task),
          {.task = args.task,
           .connect_timeout = args.options.connect_timeout,
           .stop = args.stop,
           .stub_factory =
               args.backups ? cluster_.StubFactoryFor(args.task) : client::ConnectionOptions::StubFactory()});
    });
  }
  std::unique_ptr<TrainingSession> Open(const Job& job, const SessionOptions& options) {
    return TryOpen(job, options).value();
  }
  // All workers of the job.
  std::vector<std::unique_ptr<TrainingSession>> OpenAll(const Job& job) {
    std::vector<std::unique_ptr<TrainingSession>> sessions;
    for (int worker = 0; worker < job.workers; ++worker) sessions.push_back(Open(job, Options(worker)));
    return sessions;
  }
  // A step with the same gradient for all elements.
  static absl::StatusOr<client::StepResult> Step(TrainingSession& session, float gradient,
                                                 int64_t examples = 1) {
    if (const absl::Status begun = session.BeginStep(examples, {}); !begun.ok()) return begun;
    std::fill(session.gradients().begin(), session.gradients().end(), gradient);
    return session.FinishStep();
  }
  // Names a directory of its own for the test, which is removed afterwards.
  std::string Directory() const { return directory_.string(); }

  test::InProcessCluster cluster_{{.servers = 2}};

 private:
  const std::filesystem::path directory_ = std::filesystem::path(testing::TempDir()) /
                                           (std::string("cairn-session-") + std::to_string(getpid()) + "-" +
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TrainingSessionTest, AStepFollowsTheGradient) {
  const auto session = Open(Toy(), Options());
  EXPECT_THAT(session->values(), ElementsAre(1, 2, 3));
  const auto result = Step(*session, 0.5f);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(session->values(), ElementsAre(0.5f, 1.5f, 2.5f));
  EXPECT_EQ(session->steps().version(), 1);
  EXPECT_EQ(session->position(), 1);
}

TEST_F(TrainingSessionTest, GradientsInTheCallersMemoryAreSentToo) {
  const auto session = Open(Toy(), Options());
  const std::vector<float> gradients = {1, 0, 2};
  ASSERT_EQ(session->BeginStep(1, gradients), absl::OkStatus());
  EXPECT_EQ(session->Announce(1), absl::OkStatus());
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 2, 1));
}

TEST_F(TrainingSessionTest, WrongUseIsRefusedAndChangesNothing) {
  const auto session = Open(Toy(), Options());
  EXPECT_THAT(std::string(session->Announce(0).message()), HasSubstr("no step is in progress"));
  EXPECT_EQ(session->FinishStep().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->CancelStep().code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<float> two(2);
  EXPECT_THAT(std::string(session->BeginStep(1, two).message()), HasSubstr("2 gradients for 3 values"));
  EXPECT_EQ(session->BeginStep(-1, {}).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  EXPECT_EQ(session->BeginStep(1, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->Announce(2).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session->Announce(0), absl::OkStatus());
  EXPECT_THAT(std::string(session->Announce(0).message()), HasSubstr("the gradient of 'w' has been sent"));
  EXPECT_EQ(session->AwaitWork().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_THAT(session->values(), ElementsAre(1, 2, 3));
}

TEST_F(TrainingSessionTest, ACancelledStepCountsNothing) {
  const auto session = Open(Toy(), Options());
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  session->gradients()[0] = 100;
  ASSERT_EQ(session->Announce(0), absl::OkStatus());
  ASSERT_EQ(session->CancelStep(), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 2));
  const auto counters = (*session->Control())->ServerCounters();
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->accepted(), 1);
  EXPECT_EQ(counters->duplicate(), 0);
}

TEST_F(TrainingSessionTest, AWorkerTakesPartInARoundWithoutExamples) {
  const auto sessions = OpenAll(Toy(2));
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    if (worker == 0) {
      ASSERT_TRUE(Step(session, 1, 4).ok());
      return;
    }
    ASSERT_EQ(session.BeginStep(4, {}), absl::OkStatus());
    session.gradients()[0] = 100;
    ASSERT_EQ(session.Announce(0), absl::OkStatus());
    ASSERT_EQ(session.CancelStep(), absl::OkStatus());
    ASSERT_TRUE(Step(session, 100, 0).ok());
  });
  EXPECT_THAT(sessions[0]->values(), ElementsAre(0, 1, 2));
  EXPECT_THAT(sessions[1]->values(), ElementsAre(0, 1, 2));
}

// The update of a large variable begins before all gradients have arrived.
TEST_F(TrainingSessionTest, ACancelledStepIsNoPartOfASpeculativeUpdate) {
  Job job = Toy(2);
  job.variables[0].shape = {1 << 20};
  const auto sessions = OpenAll(job);
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    ASSERT_TRUE(Step(session, 1).ok());
    if (worker == 1) {
      ASSERT_EQ(session.BeginStep(1, {}), absl::OkStatus());
      std::fill(session.gradients().begin(), session.gradients().end(), 100.0f);
      ASSERT_EQ(session.Announce(0), absl::OkStatus());
      ASSERT_EQ(session.CancelStep(), absl::OkStatus());
      ASSERT_TRUE(Step(session, 100, 0).ok());
    } else {
      ASSERT_TRUE(Step(session, 1).ok());
    }
    ASSERT_TRUE(Step(session, 1).ok());
  });
  for (const auto& session : sessions) {
    EXPECT_EQ(session->values()[0], 1 - 3);
    EXPECT_EQ(session->values()[(1 << 20) - 1], (1 << 20) - 3);
  }
}

TEST_F(TrainingSessionTest, AWaitIsMadeInSlices) {
  const auto sessions = OpenAll(Toy(2));
  ASSERT_EQ(sessions[0]->BeginStep(1, {}), absl::OkStatus());
  for (int slice = 0; slice < 3; ++slice) {
    const auto waited =
        sessions[0]->FinishStepUntil(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
    ASSERT_TRUE(waited.ok()) << waited.status();
    EXPECT_FALSE(waited->has_value());
  }
  EXPECT_THAT(std::string(sessions[0]->CancelStep().message()), HasSubstr("may be in an update already"));
  Thread other("other", [&] { EXPECT_TRUE(Step(*sessions[1], 2).ok()); });
  const auto result = sessions[0]->FinishStep();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(sessions[0]->values(), ElementsAre(0, 1, 2)) << "the mean of 0 and 2";
  other.Join();
}

TEST_F(TrainingSessionTest, TheProgramEndsAWaitAndMayGoOnWithIt) {
  std::atomic<bool> keep{false};
  SessionOptions options = Options(0);
  const auto second = [&] { return Open(Toy(2), Options(1)); };
  options.connect.keep_waiting = [&keep] { return keep.load(); };
  const auto chief = Open(Toy(2), options);
  const auto other = second();
  ASSERT_EQ(chief->BeginStep(1, {}), absl::OkStatus());
  EXPECT_EQ(chief->FinishStep().status().code(), absl::StatusCode::kCancelled);
  keep = true;
  Thread step("step", [&] { EXPECT_TRUE(Step(*other, 2).ok()); });
  EXPECT_TRUE(chief->FinishStep().ok());
  step.Join();
}

TEST_F(TrainingSessionTest, CancelEndsAWaitFromAnotherThread) {
  const auto sessions = OpenAll(Toy(2));
  ASSERT_EQ(sessions[0]->BeginStep(1, {}), absl::OkStatus());
  Thread canceller("canceller", [&] { sessions[0]->Cancel(); });
  EXPECT_EQ(sessions[0]->FinishStep().status().code(), absl::StatusCode::kCancelled);
  canceller.Join();
}

TEST_F(TrainingSessionTest, WorkItemsAreKnownSeveralStepsAhead) {
  Job job = Toy(2);
  job.mode = Mode::kAsync;
  job.updates = 0;
  job.work_queue = WorkQueue{.examples = 21, .batch_size = 2, .epochs = 2, .items_ahead = 4};
  const auto sessions = OpenAll(job);
  EXPECT_EQ(sessions[0]->steps().work().work_items_size(), 5);
  std::vector<std::atomic<int>> used(21);
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    const absl::Status status = session.Run([&]() -> absl::Status {
      if (const absl::Status work = session.AwaitWork(); !work.ok()) return work;
      if (session.finished()) return absl::OkStatus();
      const v1::WorkItem item = session.steps().work().work_items(0);
      for (int64_t i = 0; i < item.count(); ++i) ++used[static_cast<size_t>(item.first() + i)];
      return Step(session, 0, item.count()).status();
    });
    EXPECT_EQ(status, absl::OkStatus());
  });
  for (const std::atomic<int>& times : used) EXPECT_EQ(times, 2);
}

TEST_F(TrainingSessionTest, AnItemMayBeUsedUpWithoutExamples) {
  Job job = Toy();
  job.updates = 0;
  job.work_queue = WorkQueue{.examples = 4, .batch_size = 2};
  const auto session = Open(job, Options());
  EXPECT_THAT(std::string(session->BeginStep(1, {}).message()),
              HasSubstr("1 examples, but the work item has 2"));
  ASSERT_TRUE(Step(*session, 1, 0).ok());
  EXPECT_EQ(session->steps().work().work_items(0).first(), 2);
  ASSERT_TRUE(Step(*session, 1, 2).ok());
  EXPECT_TRUE(session->finished());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 2));
}

v1::GroupSettings Rate(float rate) {
  v1::GroupSettings settings;
  settings.set_learning_rate(rate);
  return settings;
}

v1::GroupSettings Untouched() {
  v1::GroupSettings settings;
  settings.set_untouched(true);
  return settings;
}

TEST_F(TrainingSessionTest, GroupsHaveLearningRatesOfTheirOwn) {
  Job job = Toy();
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Rate(0.25f)}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 2.75f));
  ASSERT_EQ(session->SetGroups({Rate(0), Rate(1)}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 1.75f));
}

TEST_F(TrainingSessionTest, TheStateOfTheOptimizerIsReadInTheOrderOfTheVariables) {
  Job job = Toy();
  job.optimizer = {.name = "torch.SGD", .hyperparameters = {{"lr", 1}, {"momentum", 0.5}}};
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_TRUE(Step(*session, 4).ok());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Untouched()}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 4).ok());
  const OptimizerState state = session->ReadOptimizerState().value();
  ASSERT_THAT(state.slots, testing::SizeIs(1));
  EXPECT_EQ(state.slots.begin()->first, "momentum_buffer");
  EXPECT_THAT(state.slots.begin()->second, ElementsAre(6, 6, 4));
  EXPECT_THAT(state.updates, ElementsAre(2, 1));
}

// The gradient of an untouched variable is not read, and its momentum and decay pause.
TEST_F(TrainingSessionTest, AStepLeavesAGroupUntouched) {
  Job job = Toy();
  job.optimizer.hyperparameters = {{"learning_rate", 1}, {"momentum", 0.5}, {"weight_decay", 0.25}};
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_TRUE(Step(*session, 1).ok());  // momentum -1
  const std::vector<float> before(session->values().begin(), session->values().end());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Untouched()}), absl::OkStatus());
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  session->gradients()[2] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_EQ(session->values()[2], before[2]);
  EXPECT_NE(session->values()[0], before[0]);
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), v1::GroupSettings()}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 0).ok());
  EXPECT_EQ(session->values()[2], before[2] * 0.75f - 0.5f) << "the momentum of the first step";
}

TEST_F(TrainingSessionTest, SettingsOfACancelledStepComeWithTheNext) {
  Job job = Toy();
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(session->SetGroups({Rate(0), Rate(0.25f)}), absl::OkStatus());
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  ASSERT_EQ(session->CancelStep(), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(1, 2, 2.75f));
}

TEST_F(TrainingSessionTest, GroupSettingsSurviveARollback) {
  Job job = Toy();
  job.variables[1].group = 1;
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  const auto session = Open(job, options);
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Untouched()}), absl::OkStatus());
  for (int server : {0, 1}) cluster_.Restart(server);
  ASSERT_EQ(session->Recover(Step(*session, 1).status()), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 3));
}

// The chief of the second session has never set them.
TEST_F(TrainingSessionTest, CheckpointsContainTheGroupSettings) {
  Job job = Toy();
  job.variables[1].group = 1;
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  {
    const auto session = Open(job, options);
    ASSERT_EQ(session->SetGroups({Rate(2), Untouched()}), absl::OkStatus());
    ASSERT_TRUE(Step(*session, 1).ok());
    ASSERT_EQ(session->SaveCheckpoint(), absl::OkStatus());
  }
  for (int server : {0, 1}) cluster_.Restart(server);
  const auto session = Open(job, options);
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(-3, -2, 3));
}

TEST_F(TrainingSessionTest, ABackupKnowsTheGroupSettings) {
  Job job = Toy();
  job.backups = 1;
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_TRUE(Step(*session, 1).ok());
  ASSERT_EQ(session->SetGroups({Rate(2), Untouched()}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(-2, -1, 2));
  cluster_.Kill(0);
  for (int i = 0; i < 2; ++i) {
    const auto result = Step(*session, 1);
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_THAT(session->values(), ElementsAre(-6, -5, 2));
}

v1::GroupSettings With(const std::string& hyperparameter, double value) {
  v1::GroupSettings settings;
  (*settings.mutable_hyperparameters())[hyperparameter] = value;
  return settings;
}

// Adam's bias correction shows how many updates it counts: the first one, with a gradient of 1, moves by 0.4. All
// variables are in group 1.
Job TorchAdam() {
  Job job = Toy();
  job.optimizer = {.name = "torch.Adam",
                   .hyperparameters = {{"lr", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}, {"eps", 0.25}}};
  for (Variable& variable : job.variables) variable.group = 1;
  return job;
}
auto AfterOneMove() {
  return Pointwise(FloatNear(1e-6f), {0.6f, 1.6f, 2.6f});
}

TEST_F(TrainingSessionTest, GroupsHaveHyperparametersOfTheirOwn) {
  Job job = Toy();
  job.optimizer = {.name = "torch.SGD", .hyperparameters = {{"lr", 1}, {"momentum", 0.5}}};
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), With("weight_decay", 1)}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, -1));
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), With("momentum", 0.25)}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 0).ok());
  EXPECT_THAT(session->values(), ElementsAre(-0.5f, 0.5f, -2));
}

// The norm is that of both groups' gradients.
TEST_F(TrainingSessionTest, GroupsAreClippedTogether) {
  Job job = Toy();
  job.optimizer = {.name = "torch.SGD", .hyperparameters = {{"lr", 1}, {"global_clipnorm", 1.5}}};
  job.variables[1].group = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), With("weight_decay", 1)}), absl::OkStatus());
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  const std::vector<float> gradients = {2, 1, 2};
  std::copy(gradients.begin(), gradients.end(), session->gradients().begin());
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1.5f, -1));
}

TEST_F(TrainingSessionTest, HyperparametersThatTheOptimizerCannotHaveAreRefusedBeforeTheyAreSent) {
  const auto session = Open(TorchAdam(), Options());
  const auto error = [&](const v1::GroupSettings& settings) {
    return std::string(session->SetGroups({v1::GroupSettings(), settings}).message());
  };
  EXPECT_THAT(error(With("beta1", 1)),
              HasSubstr("SetGroups: group 1: optimizer torch.Adam: hyperparameter 'beta1' is 1"));
  EXPECT_THAT(error(With("momentum", 0)), HasSubstr("unknown hyperparameter 'momentum'"));
  EXPECT_THAT(error(With("amsgrad", 1)), HasSubstr("'amsgrad' changes the optimizer's slots"));
  ASSERT_TRUE(Step(*session, 1).ok());
}

TEST_F(TrainingSessionTest, AGroupCountsTheUpdatesThatTouchIt) {
  const auto session = Open(TorchAdam(), Options());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Untouched()}), absl::OkStatus());
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(Step(*session, 1).ok());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), v1::GroupSettings()}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), AfterOneMove());
}

TEST_F(TrainingSessionTest, CheckpointsContainTheCountsOfEachGroup) {
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  Job job = TorchAdam();
  job.skip_empty_updates = true;
  {
    const auto session = Open(job, options);
    ASSERT_EQ(session->SetGroups({With("weight_decay", 0), Untouched()}), absl::OkStatus());
    for (int64_t examples : {1, 0, 1}) ASSERT_TRUE(Step(*session, 1, examples).ok());
    ASSERT_EQ(session->SaveCheckpoint(), absl::OkStatus());
  }
  for (int server : {0, 1}) cluster_.Restart(server);
  const auto session = Open(job, options);
  EXPECT_EQ(session->steps().version(), 3);
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), With("weight_decay", 0)}), absl::OkStatus());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), AfterOneMove());
}

TEST_F(TrainingSessionTest, ABackupKnowsTheCountsOfEachGroup) {
  Job job = TorchAdam();
  job.backups = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), Untouched()}), absl::OkStatus());
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(Step(*session, 1).ok());
  cluster_.Kill(0);
  ASSERT_EQ(session->SetGroups({v1::GroupSettings(), With("weight_decay", 0)}), absl::OkStatus());
  const auto result = Step(*session, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(session->values(), AfterOneMove());
}

TEST_F(TrainingSessionTest, ARoundWithoutExamplesIsSkippedIfTheJobWantsThat) {
  Job job = Toy();
  job.optimizer.hyperparameters = {{"learning_rate", 1}, {"momentum", 0.5}};
  job.skip_empty_updates = true;
  const auto session = Open(job, Options());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 2));
  ASSERT_TRUE(Step(*session, 1, /*examples=*/0).ok());
  EXPECT_THAT(session->values(), ElementsAre(0, 1, 2)) << "momentum rests";
  EXPECT_EQ(session->steps().version(), 2);
  ASSERT_TRUE(Step(*session, 0).ok());
  EXPECT_THAT(session->values(), ElementsAre(-0.5f, 0.5f, 1.5f));
}

TEST_F(TrainingSessionTest, EachOfManyVariablesMayBeAGroup) {
  constexpr int kGroups = 3000;
  Job job = Toy();
  job.variables.clear();
  for (int i = 0; i < kGroups; ++i) job.variables.push_back({.name = "v" + std::to_string(i), .group = i});
  const auto session = Open(job, Options());
  std::vector<v1::GroupSettings> groups(kGroups, Rate(2));
  groups[1] = Untouched();
  groups.back() = Rate(0.5f);
  ASSERT_EQ(session->SetGroups(groups), absl::OkStatus());
  const std::vector<float> before(session->values().begin(), session->values().end());
  ASSERT_TRUE(Step(*session, 1).ok());
  EXPECT_EQ(session->values()[0], before[0] - 2);
  EXPECT_EQ(session->values()[1], before[1]);
  EXPECT_EQ(session->values()[kGroups - 2], before[kGroups - 2] - 2);
  EXPECT_EQ(session->values()[kGroups - 1], before[kGroups - 1] - 0.5f);
}

TEST_F(TrainingSessionTest, SettingsForAWrongNumberOfGroupsAreRefused) {
  const auto session = Open(Toy(), Options());
  EXPECT_THAT(std::string(session->SetGroups({Rate(1), Rate(1)}).message()),
              HasSubstr("settings for 2 groups, but the job has 1"));
  EXPECT_THAT(std::string(session->SetGroups({Rate(-1)}).message()),
              HasSubstr("group 0: a learning rate of -1"));
}

TEST_F(TrainingSessionTest, RunEndsTheJobForAllWorkers) {
  Job job = Toy(2);
  job.updates = 5;
  const auto sessions = OpenAll(job);
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    EXPECT_EQ(session.Run([&] { return Step(session, 1).status(); }), absl::OkStatus());
    EXPECT_TRUE(session.ended());
  });
  EXPECT_THAT(sessions[0]->values(), ElementsAre(-4, -3, -2));
}

TEST_F(TrainingSessionTest, AnErrorOfOneWorkerReachesTheOthers) {
  const auto sessions = OpenAll(Toy(2));
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    const absl::Status status = session.Run([&] {
      if (worker == 1 && session.steps().version() == 2)
        return absl::InvalidArgumentError("a row has no target");
      return Step(session, 1).status();
    });
    EXPECT_THAT(std::string(status.message()), HasSubstr("a row has no target"));
  });
}

TEST_F(TrainingSessionTest, LostServersAreRestoredToTheNewestCheckpoint) {
  Job job = Toy();
  job.optimizer.hyperparameters["momentum"] = 0.5;
  job.updates = 20;
  const auto train = [&](TrainingSession& session) {
    return session.Run(
        [&] { return Step(session, static_cast<float>(session.steps().version() % 3)).status(); });
  };
  std::vector<float> undisturbed;
  {
    test::InProcessCluster calm({.servers = 2});
    const auto session = TrainingSession::Open(job, Options(), [&](const ReachArgs& args) {
                           return client::Connection::Open(calm.Stubs(args.task), {.task = args.task});
                         }).value();
    ASSERT_EQ(train(*session), absl::OkStatus());
    undisturbed.assign(session->values().begin(), session->values().end());
  }
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  const auto session = Open(job, options);
  while (session->steps().version() < 7)
    ASSERT_TRUE(Step(*session, static_cast<float>(session->position() % 3)).ok());
  ASSERT_EQ(session->SaveCheckpoint(), absl::OkStatus());
  while (session->steps().version() < 12)
    ASSERT_TRUE(Step(*session, static_cast<float>(session->position() % 3)).ok());
  cluster_.Restart(1);
  const absl::Status lost = Step(*session, 1).status();
  ASSERT_EQ(session->Recover(lost), absl::OkStatus());
  EXPECT_EQ(session->steps().version(), 7);
  ASSERT_EQ(train(*session), absl::OkStatus());
  EXPECT_THAT(session->values(), testing::ElementsAreArray(undisturbed));
}

TEST_F(TrainingSessionTest, WithoutCheckpointsLostValuesEndTheJob) {
  const auto session = Open(Toy(), Options());
  ASSERT_TRUE(Step(*session, 1).ok());
  for (int server : {0, 1}) cluster_.Restart(server);
  const absl::Status lost = Step(*session, 1).status();
  EXPECT_EQ(session->Recover(lost).code(), absl::StatusCode::kAborted);
}

TEST_F(TrainingSessionTest, AnotherJobResumesFromACheckpoint) {
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  options.checkpoint_every_updates = 2;
  {
    const auto session = Open(Toy(), options);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Step(*session, 1).ok());
    ASSERT_EQ(session->SaveCheckpoint(), absl::OkStatus());
  }
  for (int server : {0, 1}) cluster_.Restart(server);
  const auto session = Open(Toy(), options);
  EXPECT_EQ(session->position(), 3);
  EXPECT_THAT(session->values(), ElementsAre(-2, -1, 0));
}

TEST_F(TrainingSessionTest, ACheckpointOfOtherVariablesIsRefused) {
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  {
    ASSERT_EQ(Open(Toy(), options)->SaveCheckpoint(), absl::OkStatus());
  }
  Job other = Toy();
  other.variables[0].name = "v";
  const absl::Status refused = TryOpen(other, options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has other variables"));
}

TEST_F(TrainingSessionTest, OnlyTheChiefControlsTheJob) {
  const auto sessions = OpenAll(Toy(2));
  ASSERT_EQ((*sessions[0]->Control())->SetLearningRate(0.5f), absl::OkStatus());
  EXPECT_EQ(*(*sessions[0]->Control())->LearningRate(), 0.5f);
  EXPECT_THAT(std::string(sessions[1]->Control().status().message()), HasSubstr("not worker/1"));
  EXPECT_EQ(sessions[0]->SaveCheckpoint().code(), absl::StatusCode::kFailedPrecondition) << "no directory";
}

TEST_F(TrainingSessionTest, AWorkerWithAnotherJobIsToldTheDifference) {
  const auto chief = Open(Toy(2), Options());
  Job other = Toy(2);
  other.optimizer.hyperparameters["learning_rate"] = 2;
  const absl::Status refused = TryOpen(other, Options(1)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("learning_rate: 2 here, 1 on the servers"));
}

}  // namespace
}  // namespace cairn::api

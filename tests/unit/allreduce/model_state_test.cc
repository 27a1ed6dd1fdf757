#include "worker/allreduce/model_state.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::ElementsAre;

// A variable of two elements, and SGD with momentum.
std::unique_ptr<ModelState> State() {
  v1::Job job;
  job.set_mode(v1::MODE_SYNC);
  job.set_final_version(10);
  job.mutable_optimizer()->set_name("SGD");
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 0.5;
  (*job.mutable_optimizer()->mutable_hyperparameters())["momentum"] = 0.5;
  return ModelState::Create({.job = std::move(job), .variables = {{"a", Shape({2}), 0}}}).value();
}

std::unique_ptr<ModelState> Initialised() {
  auto state = State();
  client::FirstValues first({8, 4});
  EXPECT_EQ(state->Initialise("run", first), absl::OkStatus());
  return state;
}

absl::Status Apply(ModelState& state, std::vector<float> mean) {
  return state.Apply(mean.data(), /*examples=*/6, /*workers=*/2);
}

TEST(ModelState, AStepAppliesTheMeanAndCounts) {
  const auto state = Initialised();
  ASSERT_EQ(Apply(*state, {4, -4}), absl::OkStatus());
  EXPECT_THAT(state->values(), ElementsAre(6, 6));
  EXPECT_EQ(state->version(), 1);
  EXPECT_EQ(state->counters().examples(), 6);
  EXPECT_EQ(state->counters().accepted(), 2);
}

TEST(ModelState, AStepAppliesTheConstraintsOfVariables) {
  v1::Job job;
  job.set_mode(v1::MODE_SYNC);
  job.set_final_version(10);
  job.mutable_optimizer()->set_name("SGD");
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
  std::vector<net::VariableInfo> variables = {{"a", Shape({2}), 0}, {"b", Shape({2}), 2}};
  variables[0].constraint = Constraint{.non_negative = true};
  variables[1].constraint = Constraint{.axes = {0}, .max_norm = 5};
  const auto state = ModelState::Create({.job = std::move(job), .variables = std::move(variables)}).value();
  client::FirstValues first({1, 1, 3, 4});
  ASSERT_EQ(state->Initialise("run", first), absl::OkStatus());
  ASSERT_EQ(Apply(*state, {2, -2, -3, -4}), absl::OkStatus());
  EXPECT_THAT(state->values(), ElementsAre(0, 3, testing::FloatNear(3, 1e-6f), testing::FloatNear(4, 1e-6f)));
}

TEST(ModelState, AStepWithoutExamplesChangesOnlyTheVersion) {
  const auto state = Initialised();
  ASSERT_EQ(state->Apply(nullptr, 0, 2), absl::OkStatus());
  EXPECT_THAT(state->values(), ElementsAre(8, 4));
  EXPECT_EQ(state->version(), 1);
}

TEST(ModelState, AMeanThatIsNotFiniteChangesNothing) {
  const auto state = Initialised();
  EXPECT_EQ(Apply(*state, {std::numeric_limits<float>::infinity(), 0}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(state->values(), ElementsAre(8, 4));
  EXPECT_EQ(state->version(), 0);
}

TEST(ModelState, AWorkerThatTakesOverContinuesWithTheSameBits) {
  const auto source = Initialised();
  ASSERT_EQ(Apply(*source, {4, -4}), absl::OkStatus());
  v1::RingState described;
  source->Describe(described);
  EXPECT_EQ(described.progress().version(), 1);
  const auto copy = State();
  EXPECT_FALSE(copy->trained());
  copy->TakeOver(described, source->Pack().get());
  EXPECT_TRUE(copy->trained());
  EXPECT_EQ(copy->version(), 1);
  ASSERT_EQ(Apply(*source, {2, 2}), absl::OkStatus());
  ASSERT_EQ(Apply(*copy, {2, 2}), absl::OkStatus());
  EXPECT_THAT(copy->values(), testing::ElementsAreArray(source->values()))
      << "the momentum is part of the state";
}

TEST(ModelState, ASnapshotKeepsTheValuesOfItsVersion) {
  const auto state = Initialised();
  const auto taken = state->TakeSnapshot();
  ASSERT_TRUE(taken.ok()) << taken.status();
  ASSERT_EQ(Apply(*state, {4, -4}), absl::OkStatus());
  const auto snapshot = taken->read({std::chrono::seconds(1)}, nullptr);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->job.run_id(), "run");
  EXPECT_THAT(snapshot->servers[0].state.span().subspan(0, 2), ElementsAre(8, 4));
}

TEST(ModelState, AnUnknownOptimizerIsRefused) {
  v1::Job job;
  job.mutable_optimizer()->set_name("Rocket");
  EXPECT_EQ(ModelState::Create({.job = std::move(job), .variables = {}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::allreduce

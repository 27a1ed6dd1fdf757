#include "worker/allreduce/state_exchange.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

v1::RingState StateOf(int worker, bool has_values, int64_t version = 0) {
  v1::RingState state;
  state.set_worker(worker);
  state.set_has_values(has_values);
  state.mutable_progress()->set_version(version);
  return state;
}

v1::StateChunk ChunkAt(int64_t offset) {
  v1::StateChunk chunk;
  chunk.set_offset(offset);
  return chunk;
}

// Worker 1 of 2, whose values and slots have 6 elements.
class StateExchangeTest : public testing::Test {
 protected:
  StateExchange states_{{.worker = 1,
                         .names = {"worker/0 at a:1", "worker/1 at b:1"},
                         .final_version = 10,
                         .state_size = 6,
                         .plan = ChunkPlan::Make(4, 2),
                         .variable_begins = {0, 4},
                         .send = nullptr}};
};

TEST_F(StateExchangeTest, TheLastStateMakesTheAgreement) {
  EXPECT_EQ(states_.Missing(), "worker/0 at a:1, worker/1 at b:1");
  EXPECT_TRUE(states_.Add(3, StateOf(1, false)).ok());
  EXPECT_EQ(states_.Missing(), "worker/0 at a:1");
  EXPECT_EQ(states_.ring(), nullptr);
  EXPECT_TRUE(states_.Add(3, StateOf(0, true, 7)).ok());
  ASSERT_TRUE(states_.agreement().has_value());
  EXPECT_EQ(states_.agreement()->ring_epoch, 3);
  EXPECT_EQ(states_.ring()->step(), 7);
  EXPECT_EQ(states_.InStep(), " in step 7");
}

TEST_F(StateExchangeTest, AnErrorOfTheAgreementIsThatOfTheLastState) {
  EXPECT_TRUE(states_.Add(1, StateOf(1, false)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(states_.Add(1, StateOf(0, false)))) << "no worker has values";
}

TEST_F(StateExchangeTest, ResetForgetsStatesAndValuesAndReturnsTheRing) {
  EXPECT_TRUE(states_.Add(1, StateOf(1, false)).ok());
  EXPECT_EQ(states_.Reset(), nullptr);
  EXPECT_FALSE(states_.Has(1));
  EXPECT_TRUE(states_.Add(2, StateOf(1, false)).ok());
  EXPECT_TRUE(states_.Add(2, StateOf(0, true)).ok());
  EXPECT_NE(states_.Reset(), nullptr);
  EXPECT_EQ(states_.values(), nullptr);
  EXPECT_EQ(states_.InStep(), " while the ring was being formed");
}

TEST_F(StateExchangeTest, AnImpossibleStateIsRefused) {
  EXPECT_TRUE(states_.Check(StateOf(0, true, 10)).ok());
  EXPECT_FALSE(states_.Check(StateOf(1, true)).ok()) << "this worker's own state";
  EXPECT_FALSE(states_.Check(StateOf(2, true)).ok()) << "no such worker";
  EXPECT_FALSE(states_.Check(StateOf(0, true, 11)).ok()) << "beyond the final version";
  v1::RingState state = StateOf(0, true);
  state.mutable_progress()->set_learning_rate(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(std::string(states_.Check(state).message()), HasSubstr("invalid learning rate"));
}

TEST_F(StateExchangeTest, ValuesArriveInOrderAndOnlyIfTheyAreNeeded) {
  EXPECT_FALSE(states_.CheckValues(ChunkAt(0), 8).ok()) << "there is no agreement";
  EXPECT_TRUE(states_.Add(1, StateOf(1, false)).ok());
  EXPECT_TRUE(states_.Add(1, StateOf(0, true)).ok());
  EXPECT_EQ(states_.values()->size(), 6);
  EXPECT_TRUE(states_.CheckValues(ChunkAt(0), 8).ok());
  EXPECT_FALSE(states_.CheckValues(ChunkAt(0), 7).ok()) << "not a number of elements";
  states_.CountValues(2);
  EXPECT_FALSE(states_.CheckValues(ChunkAt(0), 8).ok()) << "already here";
  EXPECT_FALSE(states_.CheckValues(ChunkAt(2), 20).ok()) << "more than there are";
  EXPECT_TRUE(states_.CheckValues(ChunkAt(2), 16).ok());
}

TEST_F(StateExchangeTest, TheSourceMaySayHowManyValuesThereAre) {
  StateExchange states({.worker = 1,
                        .names = {"worker/0 at a:1", "worker/1 at b:1"},
                        .final_version = 10,
                        .state_size = 0,
                        .plan = ChunkPlan::Make(4, 2),
                        .variable_begins = {0, 4},
                        .send = nullptr});
  v1::StateChunk chunk = ChunkAt(0);
  chunk.set_total(3);
  EXPECT_FALSE(states.CheckValues(chunk, 8).ok()) << "there is no agreement";
  EXPECT_TRUE(states.Add(1, StateOf(1, false)).ok());
  EXPECT_TRUE(states.Add(1, StateOf(0, true)).ok());
  EXPECT_FALSE(states.CheckValues(ChunkAt(0), 8).ok()) << "it does not say";
  ASSERT_TRUE(states.CheckValues(chunk, 8).ok());
  EXPECT_EQ(states.values()->size(), 3);
  states.CountValues(2);
  EXPECT_FALSE(states.HasAllValues());
  EXPECT_FALSE(states.CheckValues(ChunkAt(2), 8).ok()) << "more than there are";
  states.CountValues(1);
  EXPECT_TRUE(states.HasAllValues());
}

}  // namespace
}  // namespace cairn::allreduce

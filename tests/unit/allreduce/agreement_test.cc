#include "worker/allreduce/agreement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames = {"worker/0", "worker/1", "worker/2"};

v1::RingState Trained(int worker, int64_t version, const std::string& run = "run") {
  v1::RingState state;
  state.set_worker(worker);
  state.set_run_id(run);
  state.set_trained(true);
  state.set_has_values(true);
  state.mutable_progress()->set_version(version);
  return state;
}

v1::RingState New(int worker, bool has_values = false, int64_t version = 0) {
  v1::RingState state;
  state.set_worker(worker);
  state.set_has_values(has_values);
  state.mutable_progress()->set_version(version);
  return state;
}

TEST(Agreement, ANewJobUsesTheValuesOfTheChief) {
  const auto agreement = Agree({New(0, /*has_values=*/true), New(1), New(2)}, kNames);
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->source, 0);
  EXPECT_TRUE(agreement->passes);
  EXPECT_FALSE(agreement->Needs(0));
  EXPECT_TRUE(agreement->Needs(1));
  EXPECT_TRUE(agreement->Needs(2));
}

TEST(Agreement, TheMostAdvancedWorkerPassesItsValuesToTheOthers) {
  const auto agreement = Agree({Trained(0, 7), Trained(1, 8), Trained(2, 8)}, kNames);
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->source, 1);
  EXPECT_TRUE(agreement->Needs(0));
  EXPECT_FALSE(agreement->Needs(2));
}

TEST(Agreement, AWorkerThatHasTrainedTakesPrecedenceOverACheckpoint) {
  const auto agreement = Agree({New(0, /*has_values=*/true, /*version=*/10), Trained(1, 9), New(2)}, kNames);
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->source, 1);
  EXPECT_TRUE(agreement->Needs(0));
}

TEST(Agreement, NoValuesPassWhenAllAreAtOneVersion) {
  const auto agreement = Agree({Trained(0, 3), Trained(1, 3), Trained(2, 3)}, kNames);
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_FALSE(agreement->passes);
}

TEST(Agreement, WorkersOfTwoRunsAreRefusedWithTheirNames) {
  const auto agreement = Agree({Trained(0, 3, "first"), New(1), Trained(2, 5, "second")}, kNames);
  EXPECT_TRUE(absl::IsFailedPrecondition(agreement.status())) << agreement.status();
  EXPECT_THAT(std::string(agreement.status().message()),
              HasSubstr("worker/0 belongs to run first, and worker/2 to run second"));
}

TEST(Agreement, WorkersWithoutValuesAreRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Agree({New(0), New(1), New(2)}, kNames).status()));
}

// The states of three workers that offer their devices.
std::vector<v1::RingState> WithDevices() {
  std::vector<v1::RingState> states = {New(0, /*has_values=*/true), New(1), New(2)};
  for (v1::RingState& state : states) {
    state.mutable_device_sums()->set_library("NCCL 2.28.9");
    state.mutable_device_sums()->set_device(absl::StrCat("gpu ", state.worker()));
  }
  return states;
}

TEST(Agreement, DevicesSumIfAllHaveTheSameLibrary) {
  const auto agreement = Agree(WithDevices(), kNames);
  ASSERT_TRUE(agreement.ok());
  EXPECT_EQ(agreement->library, "NCCL 2.28.9");
  EXPECT_EQ(agreement->why_ring, "");
}

TEST(Agreement, OtherwiseTheRingSumsAndTheReasonIsGiven) {
  const auto why = [](const std::function<void(std::vector<v1::RingState>&)>& change) {
    std::vector<v1::RingState> states = WithDevices();
    change(states);
    const auto agreement = Agree(std::move(states), kNames);
    EXPECT_EQ(agreement->library, "");
    return agreement->why_ring;
  };
  EXPECT_EQ(why([](auto& states) { states[0].clear_device_sums(); }),
            "worker/1 has NCCL 2.28.9, but worker/0 has no GPU that can sum with others'");
  EXPECT_EQ(why([](auto& states) { states[2].mutable_device_sums()->set_library("NCCL 2.27.3"); }),
            "worker/0 has NCCL 2.28.9, but worker/2 has NCCL 2.27.3");
  EXPECT_EQ(why([](auto& states) { states[2].mutable_device_sums()->set_device("gpu 1"); }),
            "worker/1 and worker/2 share a GPU");
  EXPECT_EQ(why([](auto& states) {
              for (v1::RingState& state : states) state.clear_device_sums();
            }),
            "");
}

}  // namespace
}  // namespace cairn::allreduce

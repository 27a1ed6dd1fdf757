#include "kernels/cuda/nccl/nccl_group.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cuda_on_cpu/fake_nccl.h"

namespace cairn::kernels::cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kChunk = 16 << 10;  // the fewest floats of a chunk

// The memory of two or more devices, and the destination of their sum: device d has d + 1 + i % 7 at i.
struct Operands {
  Operands(size_t devices, int64_t count) : host(static_cast<size_t>(count)) {
    for (size_t device = 0; device < devices; ++device) {
      std::vector<float>& values = memory.emplace_back();
      for (int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(device + 1) + static_cast<float>(i % 7));
    }
    for (std::vector<float>& values : memory) parts.push_back(values.data());
  }
  void Begin(DeviceGroup& group, size_t slot, const std::vector<float>& weights) {
    group.Begin(slot, {.parts = parts,
                       .weights = weights,
                       .count = static_cast<int64_t>(host.size()),
                       .host = host.data()});
  }
  // The weights are powers of two, so the sum is exact in any order.
  void ExpectSum(const std::vector<float>& weights) const {
    for (size_t i = 0; i < host.size(); ++i) {
      float expected = 0;
      for (size_t device = 0; device < weights.size(); ++device) {
        expected += weights[device] * (static_cast<float>(device + 1) + static_cast<float>(i % 7));
      }
      ASSERT_EQ(host[i], expected) << i;
    }
  }

  std::vector<std::vector<float>> memory;
  std::vector<float*> parts;
  std::vector<float> host;
};

class NcclGroupTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<DeviceGroup>> Make(std::vector<int> devices = {0, 1},
                                                    NcclLimits limits = {}) {
    auto group = MakeNcclGroup(nccl_.library(), devices, limits);
    nccl_.reductions.clear();  // those of the test sums
    nccl_.groups = 0;
    return group;
  }
  std::string Refused(NcclLimits limits = {}) {
    const auto status = Make({0, 1}, limits).status();
    EXPECT_FALSE(status.ok());
    return status.ToString();
  }

  cuda_on_cpu::FakeNccl nccl_;
};

TEST_F(NcclGroupTest, NameHasTheVersionOfNccl) {
  EXPECT_EQ((*Make())->name(), "NCCL 2.28.9");
}

TEST_F(NcclGroupTest, SumsByWeights) {
  for (const std::vector<int>& devices : {std::vector<int>{0, 1}, {2, 0, 1}, {3, 1}}) {
    const auto group = Make(devices).value();
    std::vector<float> weights = {0.5f, 0.25f, 2};
    weights.resize(devices.size());
    for (const int64_t count : {int64_t{1}, kChunk, 2 * kChunk + 1, 5 * kChunk}) {
      Operands operands(devices.size(), count);
      operands.Begin(*group, 0, weights);
      ASSERT_EQ(group->Await(0), absl::OkStatus());
      operands.ExpectSum(weights);
    }
  }
}

TEST_F(NcclGroupTest, EachDeviceIsTheRootOfAChunkInOneGroupCall) {
  const auto group = Make({0, 1, 2}).value();
  Operands operands(3, 6 * kChunk - 1);
  operands.Begin(*group, 0, {1, 1, 1});
  EXPECT_EQ(nccl_.groups, 1);
  ASSERT_EQ(nccl_.reductions.size(), 3u);
  for (int root = 0; root < 3; ++root) {
    EXPECT_EQ(nccl_.reductions[static_cast<size_t>(root)].root, root);
    EXPECT_EQ(nccl_.reductions[static_cast<size_t>(root)].count,
              static_cast<size_t>(2 * kChunk - (root == 2)));
  }
  EXPECT_EQ(group->Await(0), absl::OkStatus());
}

TEST_F(NcclGroupTest, ASmallSumIsOneChunk) {
  const auto group = Make().value();
  Operands operands(2, kChunk);
  operands.Begin(*group, 0, {1, 1});
  EXPECT_EQ(nccl_.reductions.size(), 1u);
  EXPECT_EQ(group->Await(0), absl::OkStatus());
}

TEST_F(NcclGroupTest, SeveralSumsRunAtOnceWithDifferentWeights) {
  const auto group = Make().value();
  Operands first(2, 3 * kChunk), second(2, 10);
  first.Begin(*group, 0, {1, 2});
  second.Begin(*group, 5, {4, 0});
  EXPECT_EQ(group->Await(5), absl::OkStatus());
  EXPECT_EQ(group->Await(0), absl::OkStatus());
  first.ExpectSum({1, 2});
  second.ExpectSum({4, 0});
}

TEST_F(NcclGroupTest, TheThreadsCurrentDeviceIsRestored) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const auto group = Make().value();
  Operands operands(2, 1);
  operands.Begin(*group, 0, {1, 1});
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(group->Await(0), absl::OkStatus());
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(NcclGroupTest, AMissingDeviceIsNamed) {
  EXPECT_THAT(Make({0, 9}).status().ToString(),
              HasSubstr("NCCL 2.28.9 between /gpu:0,/gpu:9: cudaSetDevice"));
}

TEST_F(NcclGroupTest, AFailedCallOfCreationIsNamedAndNothingLeaks) {
  const std::string group = "INTERNAL: NCCL 2.28.9 between /gpu:0,/gpu:1: ";
  for (const char* call :
       {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclRedOpCreatePreMulSum", "ncclReduce"}) {
    nccl_.failing = call;
    EXPECT_EQ(Refused(), group + call + " on /gpu:1: a fault: of the test");
    EXPECT_EQ(nccl_.communicators(), 0) << call;
  }
  for (const char* call : {"ncclGetUniqueId", "ncclGroupStart"}) {
    nccl_.failing = call;
    EXPECT_EQ(Refused(), group + call + ": a fault: of the test");
  }
}

TEST_F(NcclGroupTest, WrongSumsAreDetectedWhenAGroupIsMade) {
  nccl_.wrong = true;
  EXPECT_THAT(Refused(), HasSubstr("between /gpu:0,/gpu:1: wrong sum: "));
}

TEST_F(NcclGroupTest, CreationEndsAtItsLimitIfNcclDoesNotFinish) {
  nccl_.never_done = true;
  EXPECT_THAT(
      Refused({.setup = Duration::zero()}),
      HasSubstr("DEADLINE_EXCEEDED: NCCL 2.28.9 between /gpu:0,/gpu:1: ncclCommInitRankConfig on /gpu:1 did "
                "not finish in time"));
  EXPECT_EQ(nccl_.communicators(), 0);
}

// Failures of a group that has worked before.
class BrokenNcclGroup : public NcclGroupTest {
 protected:
  void SetUp() override {
    nccl_.questions = 0;
    group_ = Make({0, 1}, {.call = Duration::zero(), .sum = Duration::zero()}).value();
  }
  // The error of a sum. Every later sum has the same error, and nothing is left to wait for.
  std::string Broken() {
    operands_.Begin(*group_, 0, {1, 1});
    const absl::Status status = group_->Await(0);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(nccl_.communicators(), 0);
    operands_.Begin(*group_, 1, {1, 1});
    EXPECT_EQ(group_->Await(1), status);
    EXPECT_THAT(operands_.host, Each(0.0f));
    return status.ToString();
  }

  std::unique_ptr<DeviceGroup> group_;
  Operands operands_ = Operands(2, 3 * kChunk);
};

TEST_F(BrokenNcclGroup, AFailedCallIsNamedWithItsDevice) {
  nccl_.failing = "ncclReduce";
  EXPECT_EQ(Broken(),
            "INTERNAL: NCCL 2.28.9 between /gpu:0,/gpu:1: ncclReduce on /gpu:1: a fault: of the test");
}

TEST_F(BrokenNcclGroup, ACallThatNcclDoesNotAcceptIsAborted) {
  nccl_.never_done = true;
  EXPECT_THAT(
      Broken(),
      HasSubstr("DEADLINE_EXCEEDED: NCCL 2.28.9 between /gpu:0,/gpu:1: ncclReduce on /gpu:1 did not"));
}

TEST_F(BrokenNcclGroup, ASumThatDoesNotFinishIsAborted) {
  nccl_.stalls = true;
  operands_.Begin(*group_, 0, {1, 1});
  EXPECT_EQ(group_->Await(0).ToString(),
            "DEADLINE_EXCEEDED: NCCL 2.28.9 between /gpu:0,/gpu:1: the all-reduce over all devices did not "
            "complete on /gpu:0 in time");
  EXPECT_EQ(nccl_.communicators(), 0);
}

TEST_F(BrokenNcclGroup, AnAsynchronousErrorEndsTheWait) {
  nccl_.stalls = true;
  operands_.Begin(*group_, 0, {1, 1});
  nccl_.later = ncclRemoteError;
  EXPECT_EQ(group_->Await(0).ToString(),
            "INTERNAL: NCCL 2.28.9 between /gpu:0,/gpu:1: ncclReduce on /gpu:1: a fault: of the test");
  EXPECT_EQ(nccl_.communicators(), 0);
}

TEST(NcclLibraryTest, VersionsArePrintedWithDots) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21400), "2.14.0");
}

TEST(NcclLibraryTest, AMissingNcclIsNotFound) {
  EXPECT_EQ(OpenNccl("libnccl_that_is_nowhere.so").status(),
            absl::NotFoundError("libnccl_that_is_nowhere.so was not found"));
}

TEST(NcclLibraryTest, AnotherLibraryOfThisNameIsRefused) {
  EXPECT_EQ(OpenNccl("libm.so.6").status(), absl::FailedPreconditionError("libm.so.6 has no ncclGetVersion"));
}

TEST(NcclLibraryTest, TheInstalledNcclHasAllFunctions) {
  const auto nccl = OpenNccl();
  if (absl::IsNotFound(nccl.status())) GTEST_SKIP() << nccl.status().message();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  ncclUniqueId id = {};
  EXPECT_EQ(nccl->get_unique_id(&id), ncclSuccess);
  EXPECT_THAT(std::string(id.internal, sizeof(id.internal)), testing::Not(Each('\0')));
}

}  // namespace
}  // namespace cairn::kernels::cuda

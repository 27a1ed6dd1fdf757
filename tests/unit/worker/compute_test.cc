#include "worker/placement/compute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_device_group.h"
#include "tests/support/far_device.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A host with two GPUs, simulated on the CPU. They form a group unless fault_ is set.
class MirroredCompute : public testing::Test {
 protected:
  Compute Make(std::vector<std::string> devices) {
    options_.devices.replicas = std::move(devices);
    auto compute = MakeCompute(
        {.options = options_,
         .model = model_,
         .objective = nn::kLogits,
         .request = {.cpu_devices = 2, .threads = 2, .task = {"worker", 0}},
         .makers = {
             .count_gpus = [] { return 2; },
             .describe_gpu = [](int) { return kernels::CudaDeviceInfo{.name = "NVIDIA H200", .major = 9}; },
             .make_gpu = [](const kernels::CudaOptions&) { return std::make_unique<kernels::FarDevice>(); },
             .make_cpu = &kernels::CreateCpuDevice,
             .group_gpus = [this](absl::Span<const int> indices)
                 -> absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> {
               grouped_.assign(indices.begin(), indices.end());
               if (!fault_.ok()) return fault_;
               return std::make_unique<kernels::FakeDeviceGroup>(log_);
             }}});
    EXPECT_TRUE(compute.ok()) << compute.status();
    return *std::move(compute);
  }
  // Runs a step, in which the group must compute `sums` sums.
  void ExpectStep(Compute& compute, size_t sums) {
    const nn::Examples examples(model_, 4);
    const nn::StepResult step =
        nn::RunStep(*compute.replica, model_, model_.InitialParameters(1), examples.Batch());
    EXPECT_EQ(step.examples, 4);
    MutexLock lock(log_.mutex);
    EXPECT_EQ(log_.begun.size(), sums);
  }

  TrainOptions options_;
  const nn::Model model_ = nn::Model::FromJson(nn::kMlp, "m").value();
  absl::Status fault_;
  std::vector<int> grouped_;
  kernels::FakeDeviceGroup::Log log_;
};

TEST_F(MirroredCompute, SeveralGpusSumGradientsThemselves) {
  Compute compute = Make({"/gpu:1", "/gpu:0"});
  EXPECT_THAT(grouped_, ElementsAre(1, 0));
  EXPECT_THAT(compute.remarks, Contains("gradients are added up between them by a fake"));
  ExpectStep(compute, 1);
}

TEST_F(MirroredCompute, WithoutNcclTheHostSumsAndARemarkReportsIt) {
  fault_ = absl::NotFoundError("libnccl.so.2 was not found");
  Compute compute = Make({"/gpu:0", "/gpu:1"});
  EXPECT_THAT(compute.remarks,
              Contains("gradients are added up in the host's memory: libnccl.so.2 was not found"));
  EXPECT_THAT(compute.warnings, IsEmpty());
  ExpectStep(compute, 0);
}

TEST_F(MirroredCompute, BrokenNcclIsAWarning) {
  fault_ = absl::InternalError("NCCL 2.28.9 between /gpu:0,/gpu:1: wrong sum: 1 instead of 3");
  Compute compute = Make({"/gpu:0", "/gpu:1"});
  EXPECT_THAT(compute.warnings,
              Contains(HasSubstr("in the host's memory: NCCL 2.28.9 between /gpu:0,/gpu:1: wrong sum")));
  ExpectStep(compute, 0);
}

TEST_F(MirroredCompute, OneGpuOrACpuAmongTheDevicesMakesNoGroup) {
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"/gpu:0"}, {"/gpu:0", "/cpu:0"}, {"/cpu:0", "/cpu:1"}}) {
    Compute compute = Make(devices);
    EXPECT_THAT(grouped_, IsEmpty());
    EXPECT_THAT(compute.remarks, Not(Contains(HasSubstr("added up"))));
    ExpectStep(compute, 0);
  }
}

// A worker with one GPU, simulated on the CPU, which can sum with other workers' GPUs unless fault_ is set.
class PeerCompute : public testing::Test {
 protected:
  Compute Make(const std::string& device) {
    auto compute = MakeCompute(
        {.options = options_,
         .model = model_,
         .objective = nn::kLogits,
         .request = {.device = device, .threads = 1, .task = {"worker", 0}},
         .makers = {
             .count_gpus = [] { return 2; },
             .describe_gpu = [](int) { return kernels::CudaDeviceInfo{.name = "NVIDIA H200", .major = 9}; },
             .make_gpu =
                 [](const kernels::CudaOptions& options) {
                   return std::make_unique<NamedFarDevice>(absl::StrCat("/gpu:", options.index));
                 },
             .make_cpu = &kernels::CreateCpuDevice,
             .group_gpus = nullptr,
             .peer_gpu = [this](int index) -> absl::StatusOr<std::unique_ptr<kernels::PeerDevice>> {
               asked_.push_back(index);
               if (!fault_.ok()) return fault_;
               return std::make_unique<NoPeer>();
             }}});
    EXPECT_TRUE(compute.ok()) << compute.status();
    return *std::move(compute);
  }

  class NamedFarDevice final : public kernels::FarDevice {
   public:
    explicit NamedFarDevice(std::string name) : name_(std::move(name)) {}
    const std::string& name() const override { return name_; }

   private:
    const std::string name_;
  };
  class NoPeer final : public kernels::PeerDevice {
   public:
    const std::string& library() const override { return name_; }
    const std::string& id() const override { return name_; }
    absl::StatusOr<std::string> DrawGroup() override { return absl::UnimplementedError("not asked for"); }
    absl::StatusOr<std::unique_ptr<kernels::PeerGroup>> Join(Seat) override {
      return absl::UnimplementedError("not asked for");
    }

   private:
    const std::string name_ = "a fake";
  };

  TrainOptions options_;
  const nn::Model model_ = nn::Model::FromJson(nn::kMlp, "m").value();
  absl::Status fault_;
  std::vector<int> asked_;
};

TEST_F(PeerCompute, InAnAllReduceJobTheGpuCanSumWithOtherWorkers) {
  options_.mode = "allreduce";
  const Compute compute = Make("/gpu:1");
  EXPECT_NE(compute.peer, nullptr);
  EXPECT_THAT(asked_, ElementsAre(1));
  EXPECT_FALSE(compute.replica->device_gradients().empty());
}

TEST_F(PeerCompute, OtherJobsCpusAndRingJobsRequestNoPeer) {
  EXPECT_EQ(Make("/gpu:0").peer, nullptr);
  options_.mode = "allreduce";
  EXPECT_EQ(Make("/cpu:0").peer, nullptr);
  options_.allreduce = "ring";
  EXPECT_EQ(Make("/gpu:0").peer, nullptr);
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(PeerCompute, WithoutNcclTheRingIsUsedAndARemarkReportsIt) {
  options_.mode = "allreduce";
  fault_ = absl::NotFoundError("libnccl.so.2 was not found");
  const Compute without = Make("/gpu:0");
  EXPECT_EQ(without.peer, nullptr);
  EXPECT_THAT(without.remarks, Contains("gradients are summed around the ring: libnccl.so.2 was not found"));
  fault_ = absl::FailedPreconditionError("libnccl.so.2 is NCCL 2.8.3, older than 2.14.0");
  EXPECT_THAT(Make("/gpu:0").warnings, Contains(HasSubstr("is NCCL 2.8.3, older")));
}

}  // namespace
}  // namespace cairn::worker

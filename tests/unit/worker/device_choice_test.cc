#include "worker/devices/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/device.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A host with GPUs, simulated on the CPU, or with an error instead of GPUs.
class DeviceChoice : public testing::Test {
 protected:
  absl::StatusOr<ChosenDevice> Choose() {
    return ChooseDevice(
        request_,
        {.count_gpus = [this] { return gpus_; },
         .describe_gpu = [](int) { return kernels::CudaDeviceInfo{.name = "NVIDIA H200", .major = 9}; },
         .make_gpu =
             [this](const kernels::CudaOptions& options) -> absl::StatusOr<std::unique_ptr<kernels::Device>> {
           if (!gpu_fault_.ok()) return gpu_fault_;
           made_ = options;
           return kernels::CreateCpuDevice(0, 1);
         },
         .make_cpu = &kernels::CreateCpuDevice});
  }
  // The index of the selected GPU; -1: the CPU.
  int Chosen() {
    made_.reset();
    const auto chosen = Choose();
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    return made_.has_value() ? made_->index : -1;
  }
  std::string Refused() {
    const auto status = Choose().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  DeviceRequest request_ = {.task = {"worker", 1}};
  absl::StatusOr<int> gpus_ = absl::NotFoundError("no usable GPU: no NVIDIA driver");
  absl::Status gpu_fault_;
  std::optional<kernels::CudaOptions> made_;
};

TEST_F(DeviceChoice, AutoSelectsTheCpuWithoutAWarningIfThereIsNoGpu) {
  request_.threads = 2;
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->remarks, ElementsAre(EndsWith("(no usable GPU: no NVIDIA driver)")));
  EXPECT_THAT(chosen->remarks[0], HasSubstr("2 threads"));
  EXPECT_THAT(chosen->warnings, IsEmpty());
}

TEST_F(DeviceChoice, AutoSelectsTheGpuIfThereIsOne) {
  gpus_ = 1;
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(made_->index, 0);
  EXPECT_THAT(chosen->remarks, ElementsAre(HasSubstr("Found device 0 with properties: name: NVIDIA H200"),
                                           EndsWith("(the only GPU)")));
}

TEST_F(DeviceChoice, TrainersOnOneHostTakeItsGpusInTurn) {
  gpus_ = 2;
  for (const char* device : {"auto", "gpu"}) {
    request_.device = device;
    for (const int trainer : {0, 1, 2, 3}) {
      request_.trainer_on_host = trainer;
      EXPECT_EQ(Chosen(), trainer % 2);
    }
  }
}

TEST_F(DeviceChoice, AutoWarnsAboutAnUnusableGpu) {
  gpus_ = absl::FailedPreconditionError("no usable GPU: libcudnn.so.9 is missing");
  auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->warnings, ElementsAre("no usable GPU: libcudnn.so.9 is missing"));

  gpus_ = 1;
  gpu_fault_ = absl::ResourceExhaustedError("no memory left");
  chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->warnings, ElementsAre("/gpu:0: no memory left"));
  EXPECT_THAT(chosen->remarks, ElementsAre(EndsWith("(/gpu:0 is not usable)")));
}

TEST_F(DeviceChoice, NamedDeviceIsUsedByEveryTrainer) {
  gpus_ = 4;
  request_.trainer_on_host = 1;
  request_.device = "/job:worker/task:1/device:GPU:3";
  EXPECT_EQ(Chosen(), 3);
  request_.device = "/cpu:0";
  EXPECT_EQ(Chosen(), -1);
}

TEST_F(DeviceChoice, MissingDeviceIsRefusedWithTheAvailableOnes) {
  request_.device = "/gpu:0";
  EXPECT_EQ(Refused(), "--device: there is no /gpu:0 (no usable GPU: no NVIDIA driver); available: /cpu:0");
  gpus_ = 2;
  request_.device = "/device:GPU:2";
  EXPECT_EQ(Refused(), "--device: there is no /gpu:2; available: /cpu:0, /gpu:0, /gpu:1");
  request_.device = "/cpu:1";
  EXPECT_EQ(Refused(), "--device: there is no /cpu:1; available: /cpu:0, /gpu:0, /gpu:1");
}

TEST_F(DeviceChoice, SoftPlacementFallsBackToTheCpuWithAWarning) {
  request_.device = "/gpu:0";
  request_.allow_soft_placement = true;
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_THAT(chosen->warnings, ElementsAre(HasSubstr("there is no /gpu:0")));
  EXPECT_THAT(chosen->remarks, ElementsAre(EndsWith("(--allow_soft_placement permits it)")));
}

TEST_F(DeviceChoice, NamedGpuThatCannotBeCreatedIsNotReplaced) {
  gpus_ = 1;
  gpu_fault_ = absl::ResourceExhaustedError("no memory left");
  request_.device = "/gpu:0";
  request_.allow_soft_placement = true;
  EXPECT_EQ(Choose().status(), gpu_fault_);
}

TEST_F(DeviceChoice, DeviceOfAnotherTaskIsRefused) {
  gpus_ = 1;
  for (const char* device : {"/job:worker/task:0/device:GPU:0", "/job:ps/task:1/device:GPU:0"}) {
    request_.device = device;
    EXPECT_THAT(Refused(), HasSubstr("belongs to another task, this is worker/1"));
  }
}

TEST_F(DeviceChoice, CpuDevicesShareThreadsAndMemory) {
  request_.cpu_devices = 2;
  request_.threads = 3;
  request_.device = "/cpu:0";
  auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->device->name(), "/cpu:0");
  EXPECT_THAT(chosen->device->Description(), HasSubstr("2 threads"));
  request_.device = "/job:worker/device:CPU:1";
  chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->device->name(), "/cpu:1");
  EXPECT_THAT(chosen->device->Description(), HasSubstr("1 thread,"));
  const int64_t half = kernels::DescribeCpu().memory_bytes / 2 / int64_t{sizeof(float)};
  EXPECT_EQ(chosen->device->Allocate(half + 1, "too much").status().code(),
            absl::StatusCode::kResourceExhausted);
  request_.device = "/cpu:2";
  EXPECT_EQ(Refused(), "--device: there is no /cpu:2; available: /cpu:0, /cpu:1");
}

TEST_F(DeviceChoice, DeviceNamesMayBeIncomplete) {
  gpus_ = 2;
  request_.trainer_on_host = 1;
  for (const char* device : {"/job:worker", "/task:1/gpu:1", "/device:*:1", "", "GPU"}) {
    request_.device = device;
    EXPECT_EQ(Chosen(), 1) << device;
  }
  request_.device = "/device:TPU:0";
  EXPECT_EQ(Refused(), "--device: there is no /tpu:0; available: /cpu:0, /gpu:0, /gpu:1");
}

TEST_F(DeviceChoice, Float16NeedsAGpu) {
  request_.cuda.precision = kernels::Precision::kFloat16;
  EXPECT_EQ(Refused(), "--precision: fp16 needs a GPU, and this is /cpu:0: no usable GPU: no NVIDIA driver");
  gpus_ = 1;
  EXPECT_EQ(Chosen(), 0);
  EXPECT_EQ(made_->precision, kernels::Precision::kFloat16);
}

TEST_F(DeviceChoice, BFloat16NeedsAGpuOrAProcessorThatHasIt) {
  request_.cuda.precision = kernels::Precision::kBFloat16;
  if (kernels::DescribeCpu().bfloat16) {
    EXPECT_THAT(Choose()->device->Description(), HasSubstr(" BF16, "));
  } else {
    EXPECT_EQ(Refused(),
              "--precision: bf16 needs a GPU, or a processor with AVX-512 BF16 or AMX, and this is /cpu:0: "
              "no usable GPU: no NVIDIA driver");
  }
  gpus_ = 1;
  EXPECT_EQ(Chosen(), 0);
  EXPECT_EQ(made_->precision, kernels::Precision::kBFloat16);
}

}  // namespace
}  // namespace cairn::worker

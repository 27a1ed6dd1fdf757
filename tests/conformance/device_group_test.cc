// Two devices that sum with NCCL: two GPUs if available, and the same code on the CPU with a fake NCCL.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/nccl/nccl_group.h"
#include "kernels/cuda_backend.h"
#include "nn/replica/mirrored_replica.h"
#include "tests/support/cuda_on_cpu/fake_nccl.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::conformance {
namespace {

using kernels::Precision;
using nn::DeviceThread;
using nn::Examples;
using nn::Model;
using nn::Replica;

class TwoDevices : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!cards()) {
      fake_.emplace();
      return;
    }
    const auto count = kernels::CountCudaDevices();
    if (!count.ok()) GTEST_SKIP() << "two GPUs are needed: " << count.status().message();
    if (*count < 2) GTEST_SKIP() << "two GPUs are needed: there is " << *count;
    const auto nccl = kernels::cuda::OpenNccl();
    if (!nccl.ok()) GTEST_SKIP() << "NCCL is needed: " << nccl.status().message();
  }
  bool cards() const { return std::string(GetParam()) == "two_gpus"; }

  void Start(Precision precision = Precision::kFloat32) {
    for (int index = 0; index < 2; ++index) {
      const kernels::CudaOptions options = {.index = index, .precision = precision};
      threads_[index] =
          DeviceThread::Start(absl::StrCat("gpu:", index), [&] {
            return cards() ? kernels::CreateCudaDevice(options) : kernels::cuda::CreateDevice(options);
          }).value();
      pointers_[index] = threads_[index].get();
    }
  }
  std::unique_ptr<kernels::DeviceGroup> Group() {
    absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> group;
    threads_[0]->Run([&] {
      group =
          cards() ? kernels::CreateCudaGroup({0, 1}) : kernels::cuda::MakeNcclGroup(fake_->library(), {0, 1});
    });
    EXPECT_TRUE(group.ok()) << group.status();
    return *std::move(group);
  }
  std::unique_ptr<Replica> ByGroup(const Model& model) {
    return nn::MakeMirroredReplica(model, nn::kLogits, pointers_, {.group = Group()}).value();
  }
  std::unique_ptr<Replica> ByHost(const Model& model) {
    return nn::MakeMirroredReplica(model, nn::kLogits, pointers_).value();
  }

  std::optional<cuda_on_cpu::FakeNccl> fake_;  // must be destroyed last
  std::unique_ptr<DeviceThread> threads_[2];
  DeviceThread* pointers_[2] = {};
};

INSTANTIATE_TEST_SUITE_P(, TwoDevices, testing::Values("cuda_on_cpu", "two_gpus"),
                         [](const testing::TestParamInfo<const char*>& kind) {
                           return std::string(kind.param);
                         });

TEST_P(TwoDevices, SumsOfWholeNumbersAreExact) {
  Start();
  auto group = Group();
  for (const int64_t count : {int64_t{1}, int64_t{1000}, (int64_t{1} << 20) + 3}) {
    for (const float weight : {1.0f, 0.5f}) {
      std::vector<float> values, host(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 1000));
      std::unique_ptr<kernels::DeviceMemory> memory[2];
      std::vector<float*> parts;
      for (size_t device = 0; device < 2; ++device) {
        threads_[device]->Run([&] {
          kernels::Device& on = threads_[device]->device();
          memory[device] = on.Allocate(count, "test").value();
          ASSERT_TRUE(on.CopyToDevice(values.data(), memory[device]->data(), count * 4).ok());
          ASSERT_TRUE(on.Synchronize().ok());
        });
        parts.push_back(memory[device]->data());
      }
      group->Begin(3, {.parts = parts, .weights = {weight, 2}, .count = count, .host = host.data()});
      ASSERT_EQ(group->Await(3), absl::OkStatus());
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(host[at], (weight + 2) * values[at]) << i << " of " << count;
      }
      for (size_t device = 0; device < 2; ++device) threads_[device]->Run([&] { memory[device] = nullptr; });
    }
  }
}

TEST_P(TwoDevices, StepsEqualThoseWithSumsByTheHost) {
  Start();
  for (const char* json : {nn::kSmallCnn, nn::kNormalized, nn::kGraph}) {
    const Model model = Model::FromJson(json, "m").value();
    const auto by_host = ByHost(model), by_group = ByGroup(model);
    const std::vector<float> parameters = model.InitialParameters(1);
    for (const int64_t count :
         {12, 12, 12, 7, 1, 12}) {  // recorded from the second time on; one device without a part
      const Examples examples(model, count);
      nn::ExpectSameStep(nn::RunStep(*by_group, model, parameters, examples.Batch()),
                         nn::RunStep(*by_host, model, parameters, examples.Batch()), 1e-5f);
    }
  }
}

TEST_P(TwoDevices, TwoRunsGiveTheSameBits) {
  Start();
  const Model model = Model::FromJson(nn::kSmallCnn, "m").value();
  const Examples examples(model, 11);
  const auto first = ByGroup(model);
  const std::vector<float> ended = nn::Train(*first, model, examples, 10);
  if (!cards()) {
    // One fake at a time.
    EXPECT_EQ(nn::Train(*first, model, examples, 10), ended);
    return;
  }
  const auto second = ByGroup(model);
  EXPECT_EQ(nn::Train(*second, model, examples, 10), ended);
}

// Devices that may each need to repeat a step with a smaller loss scale.
TEST_P(TwoDevices, StepsInFloat16EqualThoseWithSumsByTheHost) {
  Start(Precision::kFloat16);
  const Model model = Model::FromJson(nn::kMlp, "m").value();
  const auto by_host = ByHost(model), by_group = ByGroup(model);
  const std::vector<float> parameters = model.InitialParameters(1);
  for (const int64_t count : {12, 12, 12}) {
    const Examples examples(model, count);
    nn::ExpectSameStep(nn::RunStep(*by_group, model, parameters, examples.Batch()),
                       nn::RunStep(*by_host, model, parameters, examples.Batch()), 1e-5f);
  }
}

}  // namespace
}  // namespace cairn::conformance

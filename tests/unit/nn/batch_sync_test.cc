#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "nn/replica/host_batch_sync.h"
#include "nn/replica/mirrored_replica.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;

TEST(HostBatchSync, TheMeanIsWeightedByExamplesInTheOrderOfTheDevices) {
  HostBatchSync sync(3);
  const int64_t begins[] = {0, 1, 4};  // the third device has no examples
  sync.Begin(begins);
  for (int round = 0; round < 2; ++round) {
    std::vector<double> first = {8, 0}, second = {4, 1};
    std::thread other([&] { EXPECT_TRUE(sync.of(1)->Mean(absl::MakeSpan(second)).ok()); });
    EXPECT_TRUE(sync.of(0)->Mean(absl::MakeSpan(first)).ok());
    other.join();
    EXPECT_THAT(first, ElementsAre(5, 0.75));
    EXPECT_EQ(second, first);
  }
}

TEST(HostBatchSync, AFailureAmongWorkersReachesAllDevicesAndTheNextStepWorks) {
  class FailsOnce final : public BatchSync {
   public:
    absl::Status Mean(absl::Span<double>) override {
      return ++calls_ == 1 ? absl::AbortedError("worker/1 is lost") : absl::OkStatus();
    }

   private:
    int calls_ = 0;
  };
  FailsOnce workers;
  HostBatchSync sync(2, &workers);
  const int64_t begins[] = {0, 2, 4};
  for (const bool ok : {false, true}) {
    sync.Begin(begins);
    std::vector<double> first = {8}, second = {4};
    absl::Status of_second;
    std::thread other([&] { of_second = sync.of(1)->Mean(absl::MakeSpan(second)); });
    const absl::Status of_first = sync.of(0)->Mean(absl::MakeSpan(first));
    other.join();
    EXPECT_EQ(of_first, ok ? absl::OkStatus() : absl::AbortedError("worker/1 is lost"));
    EXPECT_EQ(of_second, of_first);
  }
}

class WorkersOnDevices : public testing::TestWithParam<const char*> {};

TEST_P(WorkersOnDevices, TheirStepsAreThatOfTheWholeBatch) {
  for (const char* json : {kSynchronized, kSynchronizedCnn}) {
    const Model model = Model::FromJson(json, "m").value();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto alone = Replica::Create(model, kLogits, *device).value();
    const std::vector<float> parameters = model.InitialParameters(1);
    const Examples examples(model, 12);
    const StepResult expected = RunStep(*alone, model, parameters, examples.Weighted());

    constexpr int64_t kBegins[] = {0, 7, 12};
    HostBatchSync sync(2);
    sync.Begin(kBegins);
    const Devices devices[] = {Devices(GetParam()), Devices(GetParam())};
    StepResult parts[2];
    std::vector<std::thread> workers;
    for (size_t worker = 0; worker < 2; ++worker) {
      workers.emplace_back([&, worker] {
        const auto replica =
            MakeMirroredReplica(model, kLogits, devices[worker].pointers(), {.workers = sync.of(worker)})
                .value();
        parts[worker] =
            RunStep(*replica, model, parameters,
                    examples.Weighted().Part(kBegins[worker], kBegins[worker + 1] - kBegins[worker]));
      });
    }
    for (std::thread& worker : workers) worker.join();

    std::vector<float> mean(parameters.size());
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] = (7 * parts[0].gradients[i] + 5 * parts[1].gradients[i]) / 12;
    ExpectNear(mean, expected.gradients, 2e-5f, "gradient");
    EXPECT_NEAR(parts[0].loss + parts[1].loss, expected.loss, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WorkersOnDevices, testing::Values("n", "nn", "f", "nf"));

TEST(SynchronizedReplica, DoesNotStartTheNextForwardPassEarly) {
  const Model model = Model::FromJson(kSynchronized, "m").value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  HostBatchSync sync(1);
  EXPECT_TRUE(Replica::Create(model, kLogits, *device).value()->starts_early());
  EXPECT_FALSE(Replica::Create(model, kLogits, *device, {.sync = sync.of(0)}).value()->starts_early());
}

}  // namespace
}  // namespace cairn::nn

// Workers whose devices sum the gradients: the code of the CUDA backend, executed on the CPU, with a fake
// NCCL between threads that stand for processes.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/nccl/nccl_peers.h"
#include "tests/support/cuda_on_cpu/fake_nccl_peers.h"
#include "tests/unit/allreduce/workers.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::allreduce {
namespace {

using kernels::cuda::MakeNcclPeer;
using testing::Each;
using testing::FloatEq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

class NcclExchange : public testing::Test {
 protected:
  NcclExchange() {
    for (int gpu = 0; gpu < 4; ++gpu) devices_.push_back(Device(gpu));
  }
  std::unique_ptr<kernels::PeerDevice> Device(int gpu, Duration setup = std::chrono::seconds(60)) {
    return MakeNcclPeer(nccl_.library(), gpu, {.setup = setup, .end = Duration::zero()}).value();
  }
  void Start(int count, int64_t final_version) {
    workers_.emplace(count, final_version, "SGD",
                     std::map<std::string, double>{{"learning_rate", 0.5}, {"momentum", 0.5}}, std::nullopt,
                     [this](int worker) { return devices_[static_cast<size_t>(worker)].get(); });
    InitialiseChief(*workers_);
  }
  void TrainAll() {
    workers_->Each([this](int worker) {
      const absl::Status status = Train((*workers_)[worker], worker);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  // All workers have finished training, after `steps` steps in total.
  void ExpectTrained(int steps) {
    const int count = workers_->count();
    for (int worker = 0; worker < count; ++worker) {
      EXPECT_THAT((*workers_)[worker].steps().parameters(), Pointwise(FloatEq(), Expected(count, steps)));
      EXPECT_EQ((*workers_)[worker].control().ServerCounters()->examples(), 4 * count * steps);
    }
  }

  cuda_on_cpu::FakeNcclPeers nccl_;                            // destroyed last
  std::vector<std::unique_ptr<kernels::PeerDevice>> devices_;  // [worker]
  std::optional<Workers> workers_;
};

TEST_F(NcclExchange, DevicesSumIfAllWorkersHaveOne) {
  for (const int count : {2, 3, 4}) {
    SCOPED_TRACE(count);
    const size_t before = nccl_.sums().size();
    Start(count, /*final_version=*/4);
    TrainAll();
    ExpectTrained(4);
    EXPECT_EQ(nccl_.sums().size() - before, 4u);
    EXPECT_EQ(nccl_.communicators(), 0);
  }
  EXPECT_THAT(nccl_.sums(), Each(size_t{kSize}));
}

TEST_F(NcclExchange, ASingleWorkerNeedsNoSum) {
  Start(1, 4);
  TrainAll();
  ExpectTrained(4);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
}

TEST_F(NcclExchange, OneWorkerWithoutADeviceSendsAllRoundTheRing) {
  devices_[1] = nullptr;
  Start(3, 4);
  TrainAll();
  ExpectTrained(4);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
}

TEST_F(NcclExchange, AnotherVersionOfNcclSendsAllRoundTheRing) {
  devices_[2] = MakeNcclPeer(nccl_.older(), 2).value();
  Start(3, 4);
  TrainAll();
  ExpectTrained(4);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
}

TEST_F(NcclExchange, ASharedGpuSendsAllRoundTheRing) {
  devices_[1] = Device(0);
  Start(2, 4);
  TrainAll();
  ExpectTrained(4);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
}

TEST_F(NcclExchange, AWorkerLostDuringASumReturnsAndTheStepIsRepeated) {
  Start(3, /*final_version=*/6);
  Workers& workers = *workers_;
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  workers.Each([&](int worker) {
    if (worker == 1) {
      std::vector<float> gradient(kSize), mean(kSize);
      workers[1].steps().BeginStepOnDevice(absl::MakeSpan(gradient), absl::MakeSpan(mean), 4);
      nccl_.AwaitWaiting(2);
      workers.Kill(1);
      workers.Start(1, workers.job());
    } else {
      const absl::Status status = Step(workers[worker], worker);
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 at host1:1"));
    }
    EXPECT_TRUE(Train(workers[worker], worker).ok());
  });
  ExpectTrained(6);
  EXPECT_EQ(nccl_.sums().size(), 6u);  // summed by the devices again, in a new group
}

TEST_F(NcclExchange, ADeviceThatCannotJoinSendsAllRoundTheRing) {
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllReduce"}) {
    SCOPED_TRACE(call);
    nccl_.Set({.failing = call});
    Start(3, 4);
    TrainAll();
    ExpectTrained(4);
    EXPECT_THAT(nccl_.sums(), IsEmpty());
    EXPECT_EQ(nccl_.communicators(), 0);
  }
}

TEST_F(NcclExchange, DevicesThatNeverFormAGroupAreGivenUpInTime) {
  for (int worker = 0; worker < 3; ++worker) {
    devices_[static_cast<size_t>(worker)] = Device(worker, /*setup=*/Duration::zero());
  }
  nccl_.Set({.never_done = true});
  Start(3, 4);
  TrainAll();
  ExpectTrained(4);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
  EXPECT_EQ(nccl_.communicators(), 0);
}

TEST_F(NcclExchange, AFailedSumIsRepeatedAroundTheRing) {
  Start(3, /*final_version=*/5);
  Workers& workers = *workers_;
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  nccl_.Set({.stalls = true, .later = ncclRemoteError});
  workers.Each([&](int worker) {
    const absl::Status status = Step(workers[worker], worker);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the device of worker/1 at host1:1 cannot sum"));
    EXPECT_TRUE(Train(workers[worker], worker).ok());
    EXPECT_FALSE(workers[worker].steps().adds_up_on_device());
  });
  ExpectTrained(5);
}

TEST_F(NcclExchange, AWorkerWithoutExamplesAddsNothing) {
  Start(3, /*final_version=*/1);
  Workers& workers = *workers_;
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    ASSERT_TRUE(workers[worker].steps().adds_up_on_device());
    // The mean is that of worker 1 and, four times, worker 2.
    const int64_t examples[] = {0, 3, 12};
    ASSERT_TRUE(Step(workers[worker], worker, examples[worker]).ok());
  });
  for (int worker = 0; worker < 3; ++worker) {
    for (size_t i = 0; i < kSize; ++i) {
      const float first = First()[i];
      EXPECT_FLOAT_EQ(workers[worker].steps().parameters()[i],
                      first - 0.5f * ((first * 0.25f + 1) + 4 * (first * 0.25f + 2)) / 5);
    }
  }
}

TEST_F(NcclExchange, TheChiefEndsTrainingForAll) {
  Start(3, /*final_version=*/100);
  Workers& workers = *workers_;
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    ASSERT_TRUE(Step(workers[worker], worker).ok());
    EXPECT_TRUE((worker == 0 ? workers[0].control().EndTraining() : Step(workers[worker], worker)).ok());
    EXPECT_TRUE(workers[worker].steps().finished());
    EXPECT_TRUE((worker == 0 ? workers[worker].control().Finish() : workers[worker].AwaitEnd()).ok());
  });
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(workers[worker].steps().version(), 1);
}

TEST_F(NcclExchange, AWorkerThatFailsDuringASumEndsAllWorkers) {
  Start(3, /*final_version=*/100);
  Workers& workers = *workers_;
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    if (worker == 2) {
      std::vector<float> gradient(kSize), mean(kSize);
      workers[2].steps().BeginStepOnDevice(absl::MakeSpan(gradient), absl::MakeSpan(mean), 4);
      nccl_.AwaitWaiting(2);
      workers[2].Leave(v1::LEAVE_REASON_FAILED, "the loss is nan");
      return;
    }
    const absl::Status status = Step(workers[worker], worker);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kFailure) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker/2 at host2:1 failed: the loss is nan"));
    workers[worker].Leave(v1::LEAVE_REASON_FAILED, "");
  });
}

// Whole steps, by replicas on devices whose memory is not host memory.
class NcclReplicas : public NcclExchange {
 protected:
  std::vector<float> Trained(bool on_devices) {
    const nn::Model model = nn::Model::FromJson(nn::kSmallCnn, "m").value();
    std::vector<net::VariableInfo> variables;
    for (const nn::ModelVariable& variable : model.variables()) {
      variables.push_back({variable.name, variable.shape, variable.offset});
    }
    Workers workers(
        2, /*final_version=*/6, "SGD", {{"learning_rate", 0.125}}, std::nullopt,
        [&](int worker) { return on_devices ? devices_[static_cast<size_t>(worker)].get() : nullptr; },
        variables);
    InitialiseChief(workers, model.InitialParameters(1));
    workers.Each([&](int worker) {
      const auto device =
          kernels::cuda::CreateDevice({.index = worker, .precision = kernels::Precision::kFloat32}).value();
      const auto replica = nn::Replica::Create(model, nn::kLogits, *device).value();
      RingExchange& exchange = workers[worker];
      ASSERT_TRUE(exchange.Join().ok());
      EXPECT_EQ(exchange.steps().adds_up_on_device(), on_devices);
      AlignedBuffer host(model.num_parameters());
      EXPECT_TRUE(replica->Pin(host.span()).ok());
      // Recorded from the second step on. One batch has another size, and one worker has none.
      for (const int count : {12, 12, 12, 7, 0, 12}) {
        const nn::Examples examples(model, worker == 0 ? 12 : count);
        const absl::Span<float> gradients = on_devices ? replica->device_gradients() : host.span();
        const nn::BatchView batch = examples.Batch(static_cast<uint64_t>(exchange.steps().version()));
        client::Step& step = on_devices
                                 ? exchange.steps().BeginStepOnDevice(gradients, host.span(), batch.examples)
                                 : exchange.steps().BeginStep(gradients, batch.examples, 0);
        const auto result = replica->ForwardBackward(exchange.steps().parameters(), batch, gradients,
                                                     [&](int variable) { step.Announce(variable); });
        ASSERT_TRUE(result.ok()) << result.status();
        const absl::Status finished = step.Finish().status();
        ASSERT_TRUE(finished.ok()) << finished;
      }
      exchange.Leave(v1::LEAVE_REASON_FINISHED, "");
      EXPECT_TRUE((worker == 0 ? exchange.control().Finish() : exchange.AwaitEnd()).ok());
      replica->Unpin();
    });
    EXPECT_THAT(workers[0].steps().parameters(), Pointwise(testing::Eq(), workers[1].steps().parameters()));
    return {workers[0].steps().parameters().begin(), workers[0].steps().parameters().end()};
  }
};

TEST_F(NcclReplicas, ValuesEqualThoseOfTheRing) {
  const std::vector<float> by_ring = Trained(false);
  EXPECT_THAT(nccl_.sums(0), IsEmpty());
  // The sum of two workers has only one order.
  EXPECT_THAT(Trained(true), Pointwise(FloatEq(), by_ring));
  EXPECT_EQ(nccl_.sums().size(), 6u);
}

}  // namespace
}  // namespace cairn::allreduce

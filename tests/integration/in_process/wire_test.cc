// Gradients and values that travel in 16 bits, on a whole cluster.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::Each;
using testing::ElementsAre;

class WireTest : public testing::TestWithParam<v1::Encoding> {};
INSTANTIATE_TEST_SUITE_P(All, WireTest, testing::Values(v1::ENCODING_BFLOAT16, v1::ENCODING_FLOAT16),
                         [](const auto& encoding) { return v1::Encoding_Name(encoding.param); });

TEST_P(WireTest, ServersAddUpAndKeepWhatWorkersSeeRounded) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {3}, {0, 0, 0}}, {"b", {1}, {0}}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  // 1 and 2^-12 need 13 bits: no gradient of 16 bits has them both, but the sum of two rounds does.
  PushAll(workers, {{-1, -1, -1, -1}, {-1, -1, -1, -1}});
  PushAll(workers, {{-0x1p-12f, -0x1p-12f, 0, 0}, {-0x1p-12f, -0x1p-12f, 0, 0}});
  for (auto& worker : workers) EXPECT_THAT(worker->Values(), ElementsAre(1, 1, 1, 1));
  ASSERT_EQ(workers[0]->client().Pull(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(1 + 0x1p-12f, 1 + 0x1p-12f, 1, 1)) << "what is kept is exact";
}

TEST_P(WireTest, WhoComesBackComputesWithTheSameNumbersAsTheOthers) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(1, {{"a", {2}, {1 + 0x1p-12f, 3}}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(1, 3)) << "also the first time";
}

TEST_P(WireTest, ChunksOfManyElementsOfAnOddNumber) {
  constexpr int64_t kElements = 2 * (int64_t{1} << 18) + 77;  // three chunks
  InProcessCluster cluster({.servers = 1});
  ToyJob toy(2, {{"a", {kElements}, std::vector<float>(kElements, 8)}, {"b", {3}, {1, 2, 3}}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> gradient(kElements + 3, 0.5f);
  PushAll(workers, {gradient, gradient});
  for (auto& worker : workers) {
    std::vector<float> values = worker->Values();
    EXPECT_THAT(absl::MakeSpan(values).last(3), ElementsAre(0.5, 1.5, 2.5));
    values.resize(kElements);
    EXPECT_THAT(values, Each(7.5f));
  }
}

TEST(Wire, AWorkerWithAnotherWireIsNotLetIn) {
  InProcessCluster cluster;
  ToyJob toy(2, {{"a", {1}, {0}}});
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  ASSERT_EQ(chief.client().Initialise(JobFor(cluster, toy), first), absl::OkStatus());
  ToyJob other = toy;
  other.job.set_wire(v1::ENCODING_FLOAT16);
  ToyWorker worker(cluster, other, 1);
  const absl::Status status = worker.client().WaitReady(JobFor(cluster, other));
  EXPECT_THAT(status.message(), testing::HasSubstr("numbers on the wire: float16 here, float32 on the servers"));
}

}  // namespace
}  // namespace cairn::test

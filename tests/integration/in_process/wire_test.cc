// Compressed gradients and values, on a whole cluster.
#include <cmath>
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

TEST_P(WireTest, ServersKeepExactSumsAndWorkersReceiveRoundedValues) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {3}, {0, 0, 0}}, {"b", {1}, {0}}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  // 1 and 2^-12 need 13 bits: no gradient of 16 bits has them both, but the sum of two rounds does.
  PushAll(workers, {{-1, -1, -1, -1}, {-1, -1, -1, -1}});
  PushAll(workers, {{-0x1p-12f, -0x1p-12f, 0, 0}, {-0x1p-12f, -0x1p-12f, 0, 0}});
  for (auto& worker : workers) EXPECT_THAT(worker->Values(), ElementsAre(1, 1, 1, 1));
  ASSERT_EQ(workers[0]->client().steps().Pull(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(1 + 0x1p-12f, 1 + 0x1p-12f, 1, 1)) << "what is kept is exact";
}

TEST_P(WireTest, ARestartedWorkerComputesWithTheSameNumbersAsTheOthers) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(1, {{"a", {2}, {1 + 0x1p-12f, 3}}});
  toy.job.set_wire(GetParam());
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_THAT(workers[0]->Values(), ElementsAre(1, 3)) << "also the first time";
}

TEST_P(WireTest, AVariableMayHaveAnOddNumberOfElementsInSeveralChunks) {
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

constexpr int64_t kRows = 1700, kColumns = 40;  // more than one chunk, and split between two servers
constexpr size_t kKernel = kRows * kColumns;

// A kernel with `encoding`, and a bias that is too small for it.
ToyJob Compressed(v1::Encoding encoding, int workers, double topk_fraction = 1e-9) {
  ToyJob toy(workers, {{"kernel", {kRows, kColumns}, std::vector<float>(kKernel)}, {"bias", {2}, {0, 0}}});
  toy.split_bytes = 128 << 10;
  v1::GradientWire& rule = *toy.job.add_gradient_wire();
  rule.set_variables("*");
  rule.set_encoding(encoding);
  toy.job.set_topk_fraction(topk_fraction);
  return toy;
}

class CompressedTest : public testing::TestWithParam<v1::Encoding> {};
INSTANTIATE_TEST_SUITE_P(All, CompressedTest,
                         testing::Values(v1::ENCODING_INT8, v1::ENCODING_TOPK, v1::ENCODING_ONEBIT),
                         [](const auto& encoding) { return v1::Encoding_Name(encoding.param); });

TEST_P(CompressedTest, TheSumUsesEncodedGradientsAndSmallVariablesAreExact) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Compressed(GetParam(), 2, 1);
  ToyWorkers workers = StartAll(cluster, toy);
  // Two numbers in a block are exact in every encoding if the larger one is a multiple of 127.
  std::vector<float> gradient(kKernel + 2, 0.0f);
  for (size_t i = 0; i < kKernel; ++i) gradient[i] = i / 512 % 2 == 0 ? 127.0f : -127.0f;
  gradient[kKernel] = 1 + 0x1p-20f;
  PushAll(workers, {gradient, gradient});
  std::vector<float> expected(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) expected[i] = -gradient[i];
  for (auto& worker : workers) EXPECT_EQ(worker->Values(), expected);
}

TEST_P(CompressedTest, AGradientThatIsNotFiniteEndsTheJobAndIsNamed) {
  InProcessCluster cluster({.servers = 1});
  ToyWorkers workers = StartAll(cluster, Compressed(GetParam(), 1));
  std::vector<float> gradient(kKernel + 2, 1.0f);
  gradient[41] = std::nanf("");
  const auto result = workers[0]->Push(gradient);
  EXPECT_THAT(result.status().message(), testing::HasSubstr("kernel"));
}

TEST_P(CompressedTest, AsynchronousJobsUseCompressedGradients) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy = Compressed(GetParam(), 1, 1);
  toy.job.set_mode(v1::MODE_ASYNC);
  toy.job.set_replicas_to_aggregate(0);
  ToyWorkers workers = StartAll(cluster, toy);
  const std::vector<float> gradient(kKernel + 2, -127.0f);
  ASSERT_EQ(workers[0]->Push(gradient).status(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), Each(127.0f));
}

TEST(Compressed, TheResidualIsAddedToTheNextGradient) {
  InProcessCluster cluster({.servers = 2});
  ToyWorkers workers = StartAll(cluster, Compressed(v1::ENCODING_TOPK, 1));  // one element
  std::vector<float> gradient(kKernel + 2, 0.0f);
  gradient[3] = -4;
  gradient[kKernel - 1] = -3;  // on the other server
  ASSERT_EQ(workers[0]->Push(gradient).status(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values()[3], 4);
  EXPECT_EQ(workers[0]->Values()[kKernel - 1], 0);
  gradient[3] = -5;
  ASSERT_EQ(workers[0]->Push(gradient).status(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values()[3], 4);
  EXPECT_EQ(workers[0]->Values()[kKernel - 1], 6);
  ASSERT_EQ(workers[0]->Push(std::vector<float>(kKernel + 2, 0.0f)).status(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values()[3], 9);
}

TEST(Compressed, TheResidualIsZeroWhenAWorkerJoinsAgain) {
  InProcessCluster cluster({.servers = 2});
  const ToyJob toy = Compressed(v1::ENCODING_TOPK, 1);
  ToyWorkers workers = StartAll(cluster, toy);
  std::vector<float> gradient(kKernel + 2, 0.0f);
  gradient[3] = -4;
  gradient[5] = -3;
  ASSERT_EQ(workers[0]->Push(gradient).status(), absl::OkStatus());
  client::TrainingClient& client = workers[0]->client();
  ASSERT_EQ(client.Reconnect(), absl::OkStatus());
  ASSERT_EQ(client.WaitReady(JobFor(cluster, toy)), absl::OkStatus());
  ASSERT_EQ(client.Join(), absl::OkStatus());
  ASSERT_EQ(workers[0]->Push(std::vector<float>(kKernel + 2, 0.0f)).status(), absl::OkStatus());
  EXPECT_EQ(workers[0]->Values()[3], 4);
  EXPECT_EQ(workers[0]->Values()[5], 0);
}

TEST(Wire, EachVariableMayHaveItsOwnEncoding) {
  InProcessCluster cluster({.servers = 1});
  ToyJob toy(1, {{"a", {1}, {0}}, {"b", {3}, {0, 0, 0}}, {"c", {1}, {0}}});
  v1::GradientWire& rule = *toy.job.add_gradient_wire();
  rule.set_variables("b");
  rule.set_encoding(v1::ENCODING_BFLOAT16);
  ToyWorkers workers = StartAll(cluster, toy);
  const float fine = -(1 + 0x1p-20f);
  ASSERT_EQ(workers[0]->Push(std::vector<float>(5, fine)).status(), absl::OkStatus());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(-fine, 1, 1, 1, -fine));
}

TEST(Wire, AWorkerWithAnotherEncodingIsRefused) {
  InProcessCluster cluster;
  ToyJob toy(2, {{"a", {1}, {0}}});
  ToyWorker chief(cluster, toy, 0);
  client::FirstValues first(toy.initial);
  ASSERT_EQ(chief.client().Initialise(JobFor(cluster, toy), first), absl::OkStatus());
  ToyJob other = toy;
  other.job.set_wire(v1::ENCODING_FLOAT16);
  ToyWorker worker(cluster, other, 1);
  const absl::Status status = worker.client().WaitReady(JobFor(cluster, other));
  EXPECT_THAT(status.message(),
              testing::HasSubstr("numbers on the wire: float16 here, float32 on the servers"));
}

}  // namespace
}  // namespace cairn::test

// What "synchronous" means (docs of the semantics: DESIGN section 3), each fact on a whole cluster.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::test {
namespace {

using testing::ElementsAre;

TEST(SyncCluster, ARoundAppliesTheMeanOnceAndTheVersionRisesByOne) {
  InProcessCluster cluster({.servers = 2});
  ToyJob toy(2, {{"a", {2}, {10, 20}}, {"b", {1}, {30}}});
  ToyWorkers workers = StartAll(cluster, toy);
  EXPECT_THAT(workers[1]->Values(), ElementsAre(10, 20, 30));

  for (const auto& result : PushAll(workers, {{1, 2, 3}, {3, 4, 5}})) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
  }
  for (auto& worker : workers) {
    EXPECT_EQ(worker->client().version(), 1);
    EXPECT_THAT(worker->Values(), ElementsAre(8, 17, 26));
  }
}

}  // namespace
}  // namespace cairn::test

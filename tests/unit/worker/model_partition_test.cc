#include "worker/placement/model_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPartitionedModel[] = R"({"config": {"layers": [
    {"class_name": "Conv2D", "config": {"name": "conv", "filters": 2, "kernel_size": 3, "input_shape": [8, 8, 1]}},
    {"class_name": "Flatten", "config": {"name": "flatten"}},
    {"class_name": "Dense", "config": {"name": "dense", "units": 4}},
    {"class_name": "Dropout", "config": {"name": "dropout", "rate": 0.5}},
    {"class_name": "Dense", "config": {"name": "dense_1", "units": 2}}]}})";

class ModelPartitionTest : public testing::Test {
 protected:
  absl::StatusOr<ModelPartition> Divide(std::vector<std::string> rules) {
    options_.devices.place = std::move(rules);
    return PartitionModel(model_, options_);
  }
  std::vector<int> Tasks(std::vector<std::string> rules) {
    const auto partition = Divide(std::move(rules));
    EXPECT_TRUE(partition.ok()) << partition.status();
    std::vector<int> tasks;
    for (size_t i = 0; partition.ok() && i < model_.nodes().size(); ++i)
      tasks.push_back(partition->task_of(i));
    return tasks;
  }

  const nn::Model model_ = nn::Model::FromJson(kPartitionedModel, "model.json").value();
  TrainOptions options_;
};

TEST_F(ModelPartitionTest, LayerWithoutATaskIsPlacedWithItsInput) {
  EXPECT_THAT(Tasks({"conv*=/job:worker/task:0", " dense*=/job:worker/task:1"}), ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(Tasks({"dense=/job:worker/task:1", "dense_1=/job:worker/task:0"}), ElementsAre(0, 0, 1, 1, 0));
  EXPECT_THAT(Tasks({"flatten=/task:1", "dense_1=/task:2/cpu:1"}), ElementsAre(0, 1, 1, 1, 2));
}

TEST_F(ModelPartitionTest, EachDeviceOfATaskIsAStage) {
  const auto partition = Divide({"dense*=/task:1", "dense_1=/task:1/cpu:1"});
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_THAT(partition->location_of, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(partition->task_of_location, ElementsAre(0, 1, 1));
  EXPECT_EQ(partition->Describe(model_), "conv:0 flatten:0 dense:1 dropout:1 dense_1:1|");
}

TEST_F(ModelPartitionTest, ModelIsNotDividedWithoutOtherTasks) {
  EXPECT_FALSE(Divide({})->divided());
  EXPECT_FALSE(Divide({"dense=/job:worker/task:0/cpu:0"})->divided());
}

TEST_F(ModelPartitionTest, TaskWithoutALayerIsNamed) {
  EXPECT_THAT(std::string(Divide({"dense=/task:2"}).status().message()),
              HasSubstr("no layer is on /job:worker/task:1, and some are on /job:worker/task:2"));
  EXPECT_THAT(std::string(Divide({"*=/task:1"}).status().message()),
              HasSubstr("no layer is on /job:worker/task:0"));
}

TEST_F(ModelPartitionTest, TaskOfAnotherJobIsRefused) {
  EXPECT_THAT(
      std::string(Divide({"dense=/job:ps/task:1"}).status().message()),
      HasSubstr("--place 'dense=/job:ps/task:1': a layer must be on a task of /job:worker, not of /job:ps"));
}

TEST_F(ModelPartitionTest, IncompatibleFlagsAndClustersAreRefused) {
  const ModelPartition partition = Divide({"dense*=/task:1"}).value();
  EXPECT_TRUE(CheckGroups(partition, options_, 4).ok());
  EXPECT_EQ(CheckGroups(partition, options_, 3).message(),
            "--place divides the model over 2 workers, and 3 workers are not a multiple of that");
  options_.mode = "allreduce";
  EXPECT_THAT(std::string(CheckGroups(partition, options_, 4).message()),
              HasSubstr("--mode allreduce does not go with"));
  options_.mode = "sync";
  options_.elastic = true;
  EXPECT_THAT(std::string(CheckGroups(partition, options_, 4).message()),
              HasSubstr("--elastic does not go with"));
}

TEST_F(ModelPartitionTest, GroupsAreConsecutiveWorkersAndStageLeadersAreTheJobsWorkers) {
  options_.devices.place = {"dense*=/task:1"};
  net::ResolvedCluster cluster = {
      .spec = net::ClusterSpec::FromJson(R"({"ps": ["p:1"], "worker": ["a:1", "b:1", "c:1", "d:1"]})", "test")
                  .value(),
      .self = {"worker", 3},
      .source = "test"};
  const auto assignment = FindAssignment(model_, options_, cluster);
  ASSERT_TRUE(assignment.ok() && assignment->has_value()) << assignment.status();
  EXPECT_EQ((*assignment)->group, 1);
  EXPECT_EQ((*assignment)->task, 1);
  EXPECT_EQ((*assignment)->leader, 2);
  EXPECT_EQ(LeadersOf(cluster.spec, 2).ToJson(), R"({"ps":["p:1"],"worker":{"0":"a:1","2":"c:1"}})");
  cluster.spec =
      net::ClusterSpec::FromJson(R"({"ps": ["p:1"], "chief": ["e:1"], "worker": ["a:1", "b:1"]})", "test")
          .value();
  EXPECT_THAT(std::string(FindAssignment(model_, options_, cluster).status().message()),
              HasSubstr("worker 0 must be the chief"));
}

}  // namespace
}  // namespace cairn::worker

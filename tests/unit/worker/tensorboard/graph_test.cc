#include "worker/tensorboard/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/nn/models.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;

TEST(GraphOf, LayersAreConnectedAndContainTheirVariables) {
  const auto model = nn::Model::FromJson(
      nn::SequentialOf(
          R"({"class_name": "Dense", "config": {"name": "hidden", "input_shape": [3], "units": 4}},
                          {"class_name": "Dense", "config": {"name": "out", "units": 2, "use_bias": false}})"),
      "test");
  ASSERT_TRUE(model.ok()) << model.status();
  const tensorboard::v1::GraphDef graph = GraphOf(*model);
  std::map<std::string, tensorboard::v1::Node> nodes;
  for (const tensorboard::v1::Node& node : graph.node()) nodes[node.name()] = node;
  ASSERT_EQ(graph.node_size(), static_cast<int>(nodes.size())) << "names are unique";
  const std::string input = model->inputs()[0].name;
  EXPECT_THAT(nodes["hidden/Dense"].input(), ElementsAre(input, "hidden/kernel", "hidden/bias"));
  EXPECT_THAT(nodes["out/Dense"].input(), ElementsAre("hidden/Dense", "out/kernel"));
  EXPECT_EQ(nodes["out/Dense"].op(), "Dense");
  const auto& shape = nodes["out/kernel"].attr().at("_output_shapes").list().shape(0);
  EXPECT_EQ(shape.dim(0).size(), 4);
  EXPECT_EQ(shape.dim(1).size(), 2);
  EXPECT_EQ(nodes["out/Dense"].attr().at("_output_shapes").list().shape(0).dim(0).size(), -1);
}

}  // namespace
}  // namespace cairn::worker

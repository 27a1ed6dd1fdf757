#include "nn/replica/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/device.h"
#include "nn/replica/gradient_buffers.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;

// Three Dense layers: values 0 (the input) to 3.
constexpr char kChain[] = R"(
    {"class_name": "Dense", "config": {"name": "a", "units": 4, "input_shape": [3]}},
    {"class_name": "Dense", "config": {"name": "b", "units": 5}},
    {"class_name": "Dense", "config": {"name": "c", "units": 2}})";

class StepGraphTest : public testing::Test {
 protected:
  void Load(const std::string& json, int64_t batch = 2) {
    model_ = std::make_unique<Model>(Model::FromJson(json, "m").value());
    stage_ = WholeModel(*model_);
    graph_ = BuildStepGraph(*model_, stage_, {.batch = batch}, *device_, /*recorder=*/nullptr).value();
  }
  std::unique_ptr<GradientBuffers> Buffers() {
    return GradientBuffers::Create(graph_, *model_, stage_, *device_).value();
  }

  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
  std::unique_ptr<Model> model_;
  PipelineStage stage_;
  StepGraph graph_;
};

TEST_F(StepGraphTest, EveryLayerOfAChainReadsTheOutputOfTheOneBefore) {
  Load(SequentialOf(kChain));
  ASSERT_EQ(graph_.steps.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(graph_.steps[i].inputs, ElementsAre(static_cast<int>(i)));
    EXPECT_EQ(graph_.steps[i].output, static_cast<int>(i) + 1);
  }
  EXPECT_EQ(graph_.steps[1].what, "layer 'b'");
  EXPECT_EQ(graph_.output_of(graph_.steps[1]).desc.shape, Shape({2, 5}));
  EXPECT_THAT(graph_.outputs, ElementsAre(3));
}

TEST_F(StepGraphTest, OnlyValuesThatDependOnAVariableNeedAGradient) {
  Load(SequentialOf(R"({"class_name": "Rescaling", "config": {"scale": 2, "input_shape": [3]}},
                       {"class_name": "Dense", "config": {"units": 1}})"));
  const auto needs = [this](size_t value) { return graph_.values[value].needs_gradient; };
  EXPECT_FALSE(needs(0));
  EXPECT_FALSE(needs(1));
  EXPECT_TRUE(needs(2));
}

TEST_F(StepGraphTest, AnOutputThatNoMachineCanHoldIsRefused) {
  const Model model = Model::FromJson(SequentialOf(kChain), "m").value();
  const auto graph = BuildStepGraph(model, WholeModel(model), {.batch = int64_t{1} << 42}, *device_, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(graph.status())) << graph.status();
}

TEST_F(StepGraphTest, GradientsOfAChainTakeTurnsInTwoBuffers) {
  Load(SequentialOf(kChain));
  const auto buffers = Buffers();
  EXPECT_EQ(buffers->of(0), nullptr) << "the input needs no gradient";
  EXPECT_EQ(buffers->of(1), buffers->of(3));
  EXPECT_NE(buffers->of(1), buffers->of(2));
}

TEST_F(StepGraphTest, AVariableIsCompleteAfterItsStep) {
  Load(SequentialOf(kChain));
  const auto buffers = Buffers();
  EXPECT_THAT(buffers->written(0).completes, ElementsAre(0, 1));
  EXPECT_THAT(buffers->written(2).completes, ElementsAre(4, 5));
}

TEST_F(StepGraphTest, AViewPassesItsGradientOn) {
  Load(SequentialOf(R"({"class_name": "Dense", "config": {"units": 4, "input_shape": [3]}},
                       {"class_name": "Reshape", "config": {"target_shape": [2, 2]}},
                       {"class_name": "Flatten", "config": {}}, {"class_name": "Dense", "config": {"units": 1}})"));
  const auto buffers = Buffers();
  EXPECT_EQ(buffers->of(1), buffers->of(2));
  EXPECT_EQ(buffers->of(1), buffers->of(3));
}

TEST_F(StepGraphTest, TheLaterOfTwoUsersWritesAndTheEarlierOneAdds) {
  // y = Add(b(a), a): in the backward pass, Add writes the gradient of a's output, and b adds to it.
  Load(R"({"class_name": "Functional", "config": {"name": "graph", "layers": [
      {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 3]},
       "inbound_nodes": []},
      {"class_name": "Dense", "name": "a", "config": {"name": "a", "units": 4}, "inbound_nodes": [
        {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}}], "kwargs": {}}]},
      {"class_name": "Dense", "name": "b", "config": {"name": "b", "units": 4}, "inbound_nodes": [
        {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["a", 0, 0]}}], "kwargs": {}}]},
      {"class_name": "Add", "name": "y", "config": {"name": "y"}, "inbound_nodes": [
        {"args": [[{"class_name": "__keras_tensor__", "config": {"keras_history": ["b", 0, 0]}},
                   {"class_name": "__keras_tensor__", "config": {"keras_history": ["a", 0, 0]}}]], "kwargs": {}}]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["y", 0, 0]]}})");
  const auto buffers = Buffers();
  const auto adds = [&](size_t step) { return buffers->written(step).adds; };
  ASSERT_EQ(graph_.steps.size(), 3);
  EXPECT_THAT(adds(2), ElementsAre(false, false));
  EXPECT_THAT(adds(1), ElementsAre(true));
  std::vector<float*> gradients(model_->variables().size());
  const float* const written = buffers->Bind(1, gradients).inputs[0];
  EXPECT_NE(written, buffers->of(1)) << "b must not overwrite what Add has written";

  std::fill_n(buffers->of(1), 8, 1.0f);
  std::fill_n(buffers->Bind(1, gradients).inputs[0], 8, 2.0f);
  ASSERT_TRUE(buffers->AddUp(1, gradients).ok());
  EXPECT_EQ(buffers->of(1)[7], 3);
  EXPECT_THAT(buffers->written(1).adds_to_variable, ElementsAre(false, false));
}

}  // namespace
}  // namespace cairn::nn

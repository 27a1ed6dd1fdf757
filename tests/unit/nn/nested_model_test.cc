// Models that are layers of a model. Their layers become layers of the outer model, with longer names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A graph after the inputs "a" and "b" [6].
std::string Graph(absl::string_view layers, absl::string_view output) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "outer", "layers": [
      {"class_name": "InputLayer", "config": {"name": "a", "batch_shape": [null, 6]}},
      {"class_name": "InputLayer", "config": {"name": "b", "batch_shape": [null, 6]}}, )",
                      layers, R"(], "input_layers": ["a", "b"], "output_layers": [)", output, "]}}");
}

// A functional model "tower" with a Sequential "deep" in it, to be called on CALLS.
constexpr char kTower[] = R"({"class_name": "Functional", "name": "tower", "config": {"name": "tower",
    "trainable": true, "layers": [
      {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, null]}},
      {"class_name": "Dense", "config": {"name": "dense", "units": 4}, "inbound_nodes": [["in"]]},
      {"class_name": "Sequential", "config": {"name": "deep", "layers": [
          {"class_name": "Dense", "config": {"units": 3}},
          {"class_name": "BatchNormalization", "config": {"momentum": 0.5}}]},
       "inbound_nodes": [["dense"]]}],
    "input_layers": [["in", 0, 0]], "output_layers": [["deep", 0, 0]]},
  "compile_config": {"loss": "unknown"}, "inbound_nodes": [CALLS]}, )";

std::string Tower(absl::string_view calls) {
  return absl::StrReplaceAll(kTower, {{"CALLS", calls}});
}

Model ReadNested(const std::string& json) {
  auto model = Model::FromJson(json, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(NestedModel, ItsLayersAreNamedByTheModelsAroundThem) {
  const Model model = ReadNested(Graph(
      Tower(R"(["a"], ["b"])") +
          R"({"class_name": "Concatenate", "config": {"name": "both"}, "inbound_nodes": [[["tower", 0, 0], ["tower", 1, 0]]]})",
      R"("both")"));
  EXPECT_THAT(LayerNames(model),
              ElementsAre("tower/dense", "tower/deep/dense", "tower/deep/batch_normalization", "tower/dense",
                          "tower/deep/dense", "tower/deep/batch_normalization", "both"));
  EXPECT_EQ(model.num_parameters(), (6 * 4 + 4) + (4 * 3 + 3) + 4 * 3);
  EXPECT_EQ(model.variables()[0].name, "tower/dense/kernel");
  EXPECT_EQ(model.nodes()[0].variables, model.nodes()[3].variables);
}

// Two calls of a layer move its averages twice, first by the statistics of the first call.
TEST(NestedModel, AveragesMoveOncePerCall) {
  const Model model = ReadNested(Graph(
      Tower(R"(["a"], ["b"])") +
          R"({"class_name": "Add", "config": {"name": "both"}, "inbound_nodes": [[["tower", 0, 0], ["tower", 1, 0]]]})",
      R"("both")"));
  const Node &first = model.nodes()[2], &second = model.nodes()[5];
  EXPECT_FLOAT_EQ(model.variables()[static_cast<size_t>(first.variables[2])].moving_average_momentum.value(),
                  0.25);
  EXPECT_FLOAT_EQ(first.statistics_weight, 0.5f / 1.5f);
  EXPECT_FLOAT_EQ(second.statistics_weight, 1 / 1.5f);
}

TEST(NestedModel, AveragesWithoutMomentumAreThoseOfTheLastCall) {
  const std::string tower =
      absl::StrReplaceAll(Tower(R"(["a"], ["b"])"), {{R"("momentum": 0.5)", R"("momentum": 0)"}});
  const Model model = ReadNested(Graph(
      tower +
          R"({"class_name": "Add", "config": {"name": "both"}, "inbound_nodes": [[["tower", 0, 0], ["tower", 1, 0]]]})",
      R"("both")"));
  EXPECT_EQ(model.nodes()[2].statistics_weight, 0);
  EXPECT_EQ(model.nodes()[5].statistics_weight, 1);
}

// Keras 2 counts the calls of a model from 1. So does Keras 3 among the outputs.
TEST(NestedModel, CallsAreCountedFromZeroOrOne) {
  const auto add = [](const char* first, const char* second) {
    return absl::StrCat(R"({"class_name": "Add", "config": {"name": "both"}, "inbound_nodes": [[["tower", )",
                        first, R"(, 0, {}], ["tower", )", second, ", 0, {}]]]}");
  };
  const std::string calls = R"([["a", 0, 0, {}]], [["b", 0, 0, {}]])";
  EXPECT_EQ(LayerNames(ReadNested(Graph(Tower(calls) + add("1", "2"), R"("both")"))),
            LayerNames(ReadNested(Graph(Tower(calls) + add("0", "1"), R"("both")"))));
  std::string last = Tower(R"(["a"])");
  last.resize(last.rfind(','));
  EXPECT_EQ(LayerNames(ReadNested(Graph(last, R"(["tower", 1, 0])"))),
            LayerNames(ReadNested(Graph(last, R"("tower")"))));
}

TEST(NestedModel, ItsFreezingIsThatOfLayersThatDoNotSay) {
  std::string frozen =
      absl::StrReplaceAll(Tower(R"(["a"])"), {{R"("trainable": true)", R"("trainable": false)"},
                                              {R"("units": 3)", R"("units": 3, "trainable": true)"}});
  frozen.resize(frozen.rfind(','));
  const Model model = ReadNested(Graph(frozen, R"("tower")"));
  std::vector<bool> trainable;
  for (const ModelVariable& variable : model.variables()) trainable.push_back(variable.trainable());
  EXPECT_THAT(trainable, ElementsAre(false, false, true, true, false, false, false, false));
}

// A model with two outputs, the second of which is called on by name.
TEST(NestedModel, MayHaveSeveralInputsAndOutputs) {
  const Model model = ReadNested(Graph(R"(
      {"class_name": "Functional", "config": {"name": "pair", "layers": [
          {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 6]}},
          {"class_name": "InputLayer", "config": {"name": "y", "batch_shape": [null, 6]}},
          {"class_name": "Dense", "config": {"name": "one", "units": 1}, "inbound_nodes": [["x"]]},
          {"class_name": "Dense", "config": {"name": "two", "units": 2}, "inbound_nodes": [["y"]]}],
        "input_layers": {"y": ["y", 0, 0], "x": ["x", 0, 0]}, "output_layers": [["one", 0, 0], ["two", 0, 0]]},
       "inbound_nodes": [{"args": [{
           "y": {"class_name": "__keras_tensor__", "config": {"keras_history": ["a", 0, 0]}},
           "x": {"class_name": "__keras_tensor__", "config": {"keras_history": ["b", 0, 0]}}}],
         "kwargs": {"mask": {"x": null, "y": null}}}]},
      {"class_name": "Concatenate", "config": {"name": "both"}, "inbound_nodes": [[["pair", 0, 1], ["pair", 0, 0]]]})",
                                       R"("both")"));
  EXPECT_THAT(model.output_shape(), (Shape{3}));
  EXPECT_THAT(model.nodes()[0].inputs, ElementsAre(Node::OfModelInput(1)));  // "one" reads "x", which is "b"
  EXPECT_THAT(model.nodes()[1].inputs, ElementsAre(Node::OfModelInput(0)));
  EXPECT_THAT(model.nodes()[2].inputs, ElementsAre(1, 0));
}

TEST(NestedModel, IsOneRowOfTheSummary) {
  const std::string table = SummaryTable(ReadNested(Graph(
      Tower(R"(["a"], ["b"])") +
          R"({"class_name": "Add", "config": {"name": "both"}, "inbound_nodes": [[["tower", 0, 0], ["tower", 1, 0]]]})",
      R"("both")")));
  EXPECT_THAT(table,
              HasSubstr("│ tower (Functional)  │ (None, 3)         │         55 │ a[0][0], b[0][0]  │\n"));
  EXPECT_THAT(table,
              HasSubstr("│ both (Add)          │ (None, 3)         │          0 │ tower[0][0],      │\n"
                        "│                     │                   │            │ tower[1][0]       │\n"));
}

TEST(NestedModel, FaultsNameTheModelAndTheLayer) {
  std::string one = Tower(R"(["a"])");
  one.resize(one.rfind(','));
  EXPECT_THAT(
      ModelFault(Graph(absl::StrReplaceAll(one, {{R"("units": 4)", R"("units": -4)"}}), R"("tower")")),
      AllOf(HasSubstr("layer 'tower' (Functional)"), HasSubstr("layer 'tower/dense' (Dense)"),
            HasSubstr("expected a positive integer, got -4")));
  EXPECT_THAT(ModelFault(Graph(absl::StrReplaceAll(one, {{R"(["a"])", R"(["a", "b"])"}}), R"("tower")")),
              HasSubstr("layer 'tower' (Functional), line 3: is called on 2 tensors, and has 1 inputs"));
  EXPECT_THAT(ModelFault(Graph(absl::StrReplaceAll(one, {{"[null, null]", "[null, 5]"}}), R"("tower")")),
              HasSubstr("is called on [6], and its input 'in' is [5]"));
  EXPECT_THAT(ModelFault(Graph(one, R"(["tower", 0, 1])")), HasSubstr("layer 'tower' has 1 output, not 2"));
}

// Keras 2 respects training=False of a call, which has an effect on the batch normalization in the model.
TEST(NestedModel, TrainingFalseOfKeras2IsRefusedUnlessItHasNoEffect) {
  std::string one = Tower(R"([["a", 0, 0, {"training": false}]])");
  one.resize(one.rfind(','));
  EXPECT_THAT(ModelFault(Graph(one, R"(["tower", 1, 0])")),
              HasSubstr("kwargs: training: false is not supported"));
  const std::string frozen = absl::StrReplaceAll(one, {{R"("trainable": true)", R"("trainable": false)"}});
  EXPECT_TRUE(Model::FromJson(Graph(frozen, R"(["tower", 1, 0])"), "m").ok());
}

TEST(NestedModel, TooManyLevelsAreRefused) {
  const auto nest = [](int levels) {
    std::string inner = R"({"class_name": "Dense", "config": {"units": 6, "input_shape": [6]}})";
    for (int level = 0; level < levels; ++level)
      inner = absl::StrCat(R"({"class_name": "Sequential", "config": {"layers": [)", inner, "]}}");
    return SequentialOf(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6]}}, )" + inner);
  };
  EXPECT_TRUE(Model::FromJson(nest(30), "m").ok());
  EXPECT_THAT(ModelFault(nest(40)), HasSubstr("is a model within 32 models"));
}

// Thirty models, each of which calls the next one twice, are 2^30 calls.
TEST(NestedModel, TooManyCallsAreRefused) {
  std::string inner = R"({"class_name": "Dense", "config": {"name": "f", "units": 6})";
  for (int level = 0; level < 30; ++level) {
    inner = absl::StrCat(R"({"class_name": "Functional", "config": {"name": "f", "layers": [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 6]}}, )",
                         inner, R"(, "inbound_nodes": [["x"], ["f"]]}], "input_layers": ["x"],
        "output_layers": [["f", 1, 0]]})");
  }
  EXPECT_THAT(ModelFault(SequentialOf(
                  R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6]}}, )" + inner + "}")),
              HasSubstr("the model has more than 65536 calls of layers"));
}

}  // namespace
}  // namespace cairn::nn

// Functions of keras.ops: which are refused, their masks and their calls. What they compute is in keras_layers_test.cc.
#include "nn/keras_functions.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A function "f" of these arguments, as Keras writes it.
std::string Function(absl::string_view class_name, absl::string_view config, absl::string_view args,
                     absl::string_view kwargs = "") {
  return absl::StrCat(R"({"class_name": ")", class_name,
                      R"(", "module": "keras.src.ops.numpy", "name": "f", "config": {"name": "f")",
                      config.empty() ? "" : ", ", config, R"(}, "inbound_nodes": [{"args": [)", args,
                      R"(], "kwargs": {)", kwargs, "}}]}");
}

// A model of these layers, the last of which is "f", with inputs "row" [4], "steps" [3,4] and "image" [4,6,2].
std::string Graph(absl::string_view layers) {
  std::string inputs, names;
  for (const auto& [name, shape] : {std::pair{"row", "4"}, {"steps", "3, 4"}, {"image", "4, 6, 2"}}) {
    if (!absl::StrContains(layers, absl::StrCat(R"([")", name))) continue;
    absl::StrAppend(&inputs, R"({"class_name": "InputLayer", "config": {"name": ")", name,
                    R"(", "batch_shape": [null, )", shape, "]}}, ");
    absl::StrAppend(&names, names.empty() ? "" : ", ", R"([")", name, R"(", 0, 0])");
  }
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [)", inputs, layers,
                      R"(], "input_layers": [)", names, R"(], "output_layers": [["f", 0, 0]]}})");
}

std::vector<std::string> Classes(const Model& model) {
  std::vector<std::string> classes;
  for (const Node& node : model.nodes()) classes.push_back(node.layer->class_name());
  return classes;
}

struct Refused {
  const char *class_name, *config, *args, *fault;
};

TEST(KerasFunctions, ArgumentsThatNoLayerComputesAreRefusedByName) {
  constexpr char kRow[] = R"(["row", 0, 0])", kSteps[] = R"(["steps", 0, 0])",
                 kImage[] = R"(["image", 0, 0])";
  constexpr char kTwo[] = R"(["steps", 0, 0], ["image", 0, 0])";
  for (const Refused& c : {
           Refused{"Exp", "", kRow,
                   "is a function of keras.ops that is not supported: use a layer; supported"},
           {"LayerNorm", "", kRow, "that is not supported: use the layer LayerNormalization;"},
           {"Split", R"("axis": -1)", kRow, "use the layer Cropping1D"},
           {"Mean", R"("axis": null)", kSteps, "axis: null reduces the batch"},
           {"Mean", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"Mean", R"("axis": [1, -3])", kSteps, "axis: axis -3 is the batch"},
           {"Mean", R"("axis": 3)", kSteps, "axis: there is no axis 3 among 3 axes"},
           {"Mean", R"("axis": [1, -2])", kSteps, "axis: [1,-2] has an axis twice"},
           {"Mean", R"("axis": [])", kSteps, "axis: no axis is reduced"},
           {"Mean", R"("axis": "all")", kSteps, "axis: expected integers"},
           {"Mean", R"("axis": 1, "where": true)", kSteps, "where: unknown field"},
           {"Max", R"("axis": 1, "initial": 0.0)", kSteps, "initial: 0.0"},
           {"Relu", R"("alpha": 1)", kRow, "alpha: unknown field"},
           {"Relu", "", kTwo, "2 inputs, expected one"},
           {"Matmul", "", kSteps, "1 inputs, expected two"},
           {"Celu", R"("alpha": 0)", kRow, "alpha: expected a positive number"},
           {"Clip", R"("x_min": 1, "x_max": 2)", kRow, "x_min: an interval [1,2] without 0"},
           {"Clip", R"("x_min": null, "x_max": 2)", kRow, "x_min: required, a number"},
           {"Softmax", R"("axis": null)", kSteps, "axis: null normalizes over the batch"},
           {"Softmax", R"("axis": [1, 2])", kSteps, "axis: [1,2]: only one axis is supported"},
           {"Softmax", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"Cast", R"("dtype": "int32")", kRow, R"(dtype: "int32" is not supported, only "float32")"},
           {"Cast", R"("dtype": "float16")", kRow, R"(dtype: "float16" is not supported)"},
           {"Reshape", R"("newshape": [2, 6])", kSteps, "newshape: [2,6]: expected -1, for the batch"},
           {"Reshape", R"("newshape": [-1, 4])", kSteps, "of 12 elements does not fit [4]"},
           {"Reshape", R"("newshape": [-1, -1])", kSteps, "newshape: [-1,-1]: expected positive extents"},
           {"ExpandDims", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"ExpandDims", R"("axis": [1, 1, 1])", kRow, "axis: [1,1,1] has an axis twice"},
           {"Squeeze", R"("axis": 1)", kSteps, "axis: axis 1 has the extent 3, not 1"},
           {"Transpose", R"("axes": null)", kSteps, "axes: null moves the batch"},
           {"Transpose", R"("axes": [1, 0, 2])", kSteps, "axes: axis 0, the batch, must stay the first"},
           {"Transpose", R"("axes": [0, 1])", kSteps, "axes: [0,1] does not fit input [3,4] with its batch"},
           {"Transpose", R"("axes": [0, 1, 1])", kSteps, "expected every axis from 1 to 2 once"},
           {"Swapaxes", R"("axis1": 0, "axis2": 1)", kSteps, "axis1: axis 0 is the batch"},
           {"Moveaxis", R"("source": [1, 2], "destination": 1)", kSteps, "destination: expected 2 axes"},
           {"Moveaxis", R"("source": [1, 1], "destination": [1, 2])", kSteps,
            "source: an axis is moved twice"},
           {"Concatenate", R"("axis": 0)", R"([["steps", 0, 0], ["steps", 0, 0]])",
            "axis: axis 0 is the batch"},
           {"Concatenate", R"("axis": -1)", R"([["steps", 0, 0], ["image", 0, 0]])",
            "differ in more than axis"},
           {"Stack", R"("axis": 1)", kTwo, "inputs: [3,4] and [4,6,2] have different shapes"},
           {"Matmul", "", R"(["image", 0, 0], ["image", 0, 0])",
            "only a matrix for each example is supported"},
           {"Add", "", kTwo, "inputs: [3,4] and [4,6,2] have different numbers of axes"},
           {"Divide", "", R"(["row", 0, 0], ["row", 0, 0])",
            "inputs: only a number as the divisor is supported"},
           {"MaxPool", R"("pool_size": 2, "padding": "same")", kRow, "[4] is not a sequence"},
           {"MaxPool", R"("pool_size": 0)", kSteps, "pool_size: "},
           {"Pad", R"("pad_width": [[0, 0], [0, 0], [1, 0]])", kSteps,
            "pad_width: [[0,0],[0,0],[1,0]] of input"},
           {"Pad", R"("pad_width": 1)", kSteps, "pad_width: expected a pair of numbers for each axis, got 1"},
           {"Pad", R"("pad_width": [[0, 0], [1, 0], [0, 0]], "mode": "reflect")", kSteps,
            R"(mode: "reflect")"},
           {"Repeat", R"("repeats": 2, "axis": -1)", kSteps, "axis: -1 of input [3,4]: only steps"},
           {"Repeat", R"("repeats": 2, "axis": null)", kSteps, "axis: null flattens the batch"},
           {"Resize", R"("size": [6, 6])", kImage,
            "size: [6,6] of input [4,6,2]: only images, and multiples"},
           {"Resize", R"("size": [8, 6], "antialias": true)", kImage, "antialias: true"},
           {"Resize", R"("size": [8, 6], "interpolation": "bicubic")", kImage, "interpolation: "},
       }) {
    SCOPED_TRACE(absl::StrCat(c.class_name, " ", c.config));
    const std::string fault = ModelFault(Graph(Function(c.class_name, c.config, c.args)));
    EXPECT_THAT(fault, HasSubstr(absl::StrCat("layer 'f' (", c.class_name, ")")));
    EXPECT_THAT(fault, HasSubstr(c.fault));
  }
}

TEST(KerasFunctions, TensorsAsKeywordArgumentsAreRefused) {
  const std::string fault = ModelFault(
      Graph(Function("Average", R"("axis": 1)", R"(["steps", 0, 0])", R"("weights": ["steps", 0, 0])")));
  EXPECT_THAT(fault, HasSubstr("layer 'f' (Average), line 1: inbound_nodes: kwargs: weights: "));
  EXPECT_THAT(ModelFault(Graph(Function("Relu", "", R"(["row", 0, 0])", R"("mask": ["row", 0, 0])"))),
              HasSubstr("kwargs: mask: "));
}

TEST(KerasFunctions, SpatialReductionsArePoolingLayers) {
  const auto model = Model::FromJson(
      Graph(Function("Mean", R"("axis": [2, 1], "keepdims": false)", R"(["image", 0, 0])")), "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Classes(*model), ElementsAre("GlobalAveragePooling2D"));
  EXPECT_THAT(LayerNames(*model), ElementsAre("f"));
}

TEST(KerasFunctions, SummaryShowsThemAsKerasDoes) {
  const auto model = Model::FromJson(Graph(Function("Sum", R"("axis": 2)", R"(["image", 0, 0])")), "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Classes(*model),
              ElementsAre("Permute", "Reshape", "GlobalAveragePooling1D", "Reshape", "Rescaling"));
  ASSERT_EQ(model->rows().size(), 2u);
  EXPECT_EQ(model->rows()[1].name, "f");
  EXPECT_EQ(model->rows()[1].class_name, "Sum");
  EXPECT_EQ(model->rows()[1].output_shape, "(None, 4, 2)");
  EXPECT_THAT(model->rows()[1].connected_to, ElementsAre("image[0][0]"));
}

TEST(KerasFunctions, IntegersMayBeReshapedBeforeTheyAreLookedUp) {
  const auto model = Model::FromJson(
      R"({"class_name": "Functional", "config": {"name": "m", "layers": [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3], "dtype": "int32"}},
        {"class_name": "ExpandDims", "module": "keras.src.ops.numpy", "name": "f", "config": {"name": "f", "axis": -1},
         "inbound_nodes": [{"args": [["x", 0, 0]], "kwargs": {}}]},
        {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}, "inbound_nodes": [["f"]]}],
      "input_layers": ["x"], "output_layers": ["e"]}})",
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->inputs()[0].dtype, DType::kInt32);
}

// An Embedding gives the mean over the rows of a ragged input, as one step.
TEST(KerasFunctions, RaggedRowsAreRefused) {
  const std::string fault = ModelFault(
      R"({"class_name": "Functional", "config": {"name": "m", "layers": [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null], "dtype": "int32", "ragged": true}},
        {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}, "inbound_nodes": [["x"]]},
        {"class_name": "Sum", "module": "keras.src.ops.numpy", "name": "f", "config": {"name": "f", "axis": 1},
         "inbound_nodes": [{"args": [["e", 0, 0]], "kwargs": {}}]}],
      "input_layers": ["x"], "output_layers": ["f"]}})");
  EXPECT_THAT(fault,
              HasSubstr("layer 'f' (Sum), line 4: its input is ragged, or an Embedding's of a ragged input"));
}

// A Masking, a function, and a layer that takes masks.
std::string Masked(absl::string_view function, absl::string_view reader) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3, 2]}},
    {"class_name": "Masking", "config": {"name": "k"}, "inbound_nodes": [["x"]]}, )",
                      function, ", ", reader, R"(], "input_layers": ["x"], "output_layers": ["r"]}})");
}

TEST(KerasFunctions, NeitherTakeNorPassMasks) {
  constexpr char kLstm[] =
      R"({"class_name": "LSTM", "config": {"name": "r", "units": 2}, "inbound_nodes": [["f"]]})";
  constexpr char kDense[] =
      R"({"class_name": "Dense", "config": {"name": "r", "units": 2}, "inbound_nodes": [["f"]]})";
  for (const auto& [function, reader] : {std::pair{Function("Relu", "", R"(["k", 0, 0])"), kLstm},
                                         {Function("Softmax", R"("axis": 1)", R"(["k", 0, 0])"), kLstm},
                                         {Function("Mean", R"("axis": 1)", R"(["k", 0, 0])"), kDense}}) {
    const auto model = Model::FromJson(Masked(function, reader), "m");
    ASSERT_TRUE(model.ok()) << model.status();
    for (const Node& node : model->nodes()) EXPECT_THAT(node.masked, IsEmpty()) << node.layer->class_name();
  }
  // Where a function returns its input, backends of Keras differ.
  for (const std::string& function : {Function("Cast", R"("dtype": "float32")", R"(["k", 0, 0])"),
                                      Function("Reshape", R"("newshape": [-1, 3, 2])", R"(["k", 0, 0])"),
                                      Function("Transpose", R"("axes": [0, 1, 2])", R"(["k", 0, 0])"),
                                      Function("Squeeze", "", R"(["k", 0, 0])"),
                                      Function("Concatenate", R"("axis": -1)", R"([["k", 0, 0]])")}) {
    EXPECT_THAT(
        ModelFault(Masked(function, kLstm)),
        HasSubstr("changes nothing here, and its input has a mask of time steps: remove the function"));
  }
}

}  // namespace
}  // namespace cairn::nn

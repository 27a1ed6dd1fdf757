// Functions of keras.ops: which are refused, their masks and their calls. What they compute is in keras_layers_test.cc.
#include "nn/functions/keras_functions.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

TEST(KerasFunctions, NumbersMayBeInfiniteAsPythonWritesThem) {
  const auto model = Model::FromJson(
      Graph(
          R"({"class_name": "Clip", "module": "keras.src.ops.numpy", "config": {"name": "c", "x_min": -Infinity,
                "x_max": 2}, "inbound_nodes": [{"args": [["row", 0, 0]]}]},
               {"class_name": "Maximum", "module": "keras.src.ops.numpy", "config": {"name": "f"},
                "inbound_nodes": [{"args": [["c", 0, 0], -Infinity]}]})"),
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(Model::FromJson(model->canonical_json(), "m").ok());
}

TEST(KerasFunctions, ArgumentsThatNoLayerComputesAreRefusedByName) {
  constexpr char kRow[] = R"(["row", 0, 0])", kSteps[] = R"(["steps", 0, 0])",
                 kImage[] = R"(["image", 0, 0])";
  constexpr char kTwo[] = R"(["steps", 0, 0], ["image", 0, 0])";
  for (const Refused& c : {
           Refused{"Cumprod", "", kRow,
                   "is a function of keras.ops that is not supported: use a layer; supported"},
           {"Cumsum", R"("axis": null)", kRow, "axis: null flattens the batch"},
           {"Cumsum", R"("axis": 0)", kRow, "axis: axis 0 is the batch"},
           {"Cumsum", R"("axis": 1, "dtype": "bool")", kRow, R"(dtype: "bool" is not supported)"},
           {"Any", R"("axis": null)", kSteps, "axis: null reduces the batch"},
           {"All", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"CountNonzero", R"("axis": null)", kSteps, "axis: null reduces the batch"},
           {"Round", R"("decimals": 2)", kRow, "decimals: 2"},
           {"Equal", "", kTwo, "inputs: [3,4] and [4,6,2] have different numbers of axes"},
           {"Greater", "", kSteps, "1 inputs, expected two"},
           {"Ravel", "", kRow, "that is not supported: use the layer Flatten;"},
           {"Split", R"("indices_or_sections": 3, "axis": -1)", kRow, "4 elements are not 3 equal parts"},
           {"Split", R"("indices_or_sections": [0, 2], "axis": 1)", kRow,
            "[0,2] of 4 elements: expected rising"},
           {"Split", R"("indices_or_sections": [2, 5], "axis": 1)", kRow,
            "[2,5] of 4 elements: expected rising"},
           {"Split", R"("indices_or_sections": 2)", kRow, "axis: axis 0 is the batch"},
           {"Unstack", R"("num": 4, "axis": 1)", kSteps, "num: axis 1 has 3 elements, not 4"},
           {"Tile", R"("repeats": [2, 1])", kRow,
            "repeats: [2,1] of input [4] with its batch: the batch cannot"},
           {"Tile", R"("repeats": [2097152])", kRow, "repeats: [2097152]: expected numbers from 1 to"},
           {"Slice", R"("shape": [-1, 2])", R"(["row", 0, 0], [0, -1])",
            "shape: 2 elements from -1 on of the 4 of axis 1"},
           {"Tile", R"("repeats": [0])", kRow, "repeats: [0]: expected numbers from 1 to 1048576"},
           {"LogSoftmax", R"("axis": null)", kSteps, "axis: null normalizes over the batch"},
           {"Logsumexp", R"("axis": null)", kSteps, "axis: null reduces the batch"},
           {"Logsumexp", R"("axis": 3)", kSteps, "axis: there is no axis 3 among 3 axes"},
           {"Var", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"Moments", R"("axes": [1], "synchronized": true)", kSteps, "synchronized: true"},
           {"Normalize", R"("order": 1)", kSteps, "order: 1"},
           {"LayerNorm", "", R"(["row", 0, 0], null, ["row", 0, 0])", "2 inputs, expected one"},
           {"OneHot", R"("num_classes": 0)", kRow, "num_classes: "},
           {"OneHot", R"("num_classes": 3, "axis": 1)", kRow, "axis: 1"},
           {"Einsum", R"("subscripts": "bij->bji")", kTwo, "name 1 tensors, not 2"},
           {"Einsum", R"("subscripts": "bij,bhwc")", kTwo,
            "only the forms \"bij->bji\" and \"bij,bjk->bik\""},
           {"Einsum", R"("subscripts": "bij,bhwj,bh->bi")", kTwo, "only the forms"},
           {"Einsum", R"("subscripts": "...ij,bhwj->bihw")", kTwo, "'.' is not supported"},
           {"Einsum", R"("subscripts": "bij,bhwj->ibhw")", kTwo, "the first letter of all tensors must be"},
           {"Einsum", R"("subscripts": "bii,bhwi->bhw")", kTwo, "'bii' has a letter twice"},
           {"Einsum", R"("subscripts": "bij,bhwj->bihwx")", kTwo, "'x' of the output is in no tensor"},
           {"Einsum", R"("subscripts": "bij,bhj->bih")", kTwo,
            "input [4,6,2] has 4 axes with the batch, not 3"},
           {"Einsum", R"("subscripts": "bij,bhwj->bihw")", kTwo, "'j' has the extents 4 and 2"},
           {"Slice", R"("shape": [-1, 2])", R"(["row", 0, 0], [0, 3])",
            "shape: 2 elements from 3 on of the 4 of axis 1"},
           {"Slice", R"("shape": [-1, 2])", R"(["row", 0, 0], [0])", "shape: [-1,2] does not fit input [4]"},
           {"Slice", R"("shape": [1, 2])", R"(["row", 0, 0], [0, 0])",
            "shape: the first extent is that of the batch"},
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
           {"Clip", R"("x_min": 2, "x_max": 1)", kRow, "x_min: 2 is above x_max, 1"},
           {"Clip", R"("x_min": null, "x_max": 2)", kRow, "x_min: required, a number"},
           {"Softmax", R"("axis": null)", kSteps, "axis: null normalizes over the batch"},
           {"Softmax", R"("axis": [1, 2])", kSteps, "axis: [1,2]: only one axis is supported"},
           {"Softmax", R"("axis": 0)", kSteps, "axis: axis 0 is the batch"},
           {"Cast", R"("dtype": "uint8")", kRow,
            R"(dtype: "uint8" is not supported, only "float32", "int32")"},
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
            "inputs: no product of [4,6,2] and [4,6,2]: expected [..., n, k] and [..., k, m]"},
           {"Matmul", "", kTwo, "inputs: [3,4] and [4,6,2]: only matrices for each example"},
           {"Matmul", "", R"(["row", 0, 0], ["row", 0, 0])", "inputs: [4] and [4]: only matrices"},
           {"Add", "", kTwo, "inputs: [3,4] and [4,6,2] have different numbers of axes"},
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

// A part of an index, as Keras writes it.
std::string Slice(absl::string_view start, absl::string_view stop, absl::string_view step) {
  return absl::StrCat(R"({"class_name": "__slice__", "config": {"start": )", start, R"(, "stop": )", stop,
                      R"(, "step": )", step, "}}");
}

TEST(KerasFunctions, IndicesThatNoLayerComputesAreRefused) {
  const std::string all = Slice("null", "null", "null"),
                    dots = R"({"class_name": "__ellipsis__", "config": {}})";
  for (const auto& [index, fault] : {
           std::pair{std::string("0"), "the first index is that of the batch, and must be : or ..."},
           {"[null, 0]", "the first index is that of the batch"},
           {absl::StrCat("[", Slice("1", "null", "null"), ", 0]"), "the first index is that of the batch"},
           {Slice("null", "2", "null"), "the first index is that of the batch"},
           {absl::StrCat("[", Slice("null", "100", "null"), ", 0]"), "the first index is that of the batch"},
           {Slice("null", "null", "2"), "the first index is that of the batch"},
           {absl::StrCat("[", all, ", 3]"), "has no vector at step 3"},
           {absl::StrCat("[", all, ", 0, -5]"), "-5 is not an index of 4 elements"},
           {absl::StrCat("[", all, ", 0, 0, 0]"), "4 indices do not fit 3 axes"},
           {absl::StrCat("[", dots, ", ", dots, "]"), "do not fit 3 axes"},
           {absl::StrCat("[", all, ", ", Slice("2", "1", "null"), "]"), "selects nothing of 3 elements"},
           {absl::StrCat("[", all, ", ", Slice("null", "null", "-1"), "]"), "a step of -1 is not supported"},
           {absl::StrCat("[", all, ", ", Slice("null", "1.5", "null"), "]"), "1.5 is not an index"},
           {absl::StrCat("[", all, ", 0, 18446744073709551615]"), "18446744073709551615 is not an index"},
           {absl::StrCat("[", all, ", [0, 2]]"),
            "only integers, slices, ... and None are supported, not [0,2]"},
       }) {
    SCOPED_TRACE(index);
    const std::string text =
        ModelFault(Graph(Function("GetItem", "", absl::StrCat(R"(["steps", 0, 0], )", index))));
    EXPECT_THAT(text, HasSubstr("layer 'f' (GetItem)"));
    EXPECT_THAT(text, HasSubstr(fault));
  }
  EXPECT_THAT(ModelFault(Graph(Function("GetItem", "", R"(["steps", 0, 0])"))),
              HasSubstr("layer 'f': a GetItem needs one call, with a tensor and an index"));
}

TEST(KerasFunctions, StepOfASequenceIsSelectedAsOne) {
  const std::string index = absl::StrCat(R"(["steps", 0, 0], [)", Slice("null", "null", "null"), ", -1]");
  const auto model = Model::FromJson(Graph(Function("GetItem", "", index)), "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Classes(*model), ElementsAre("SelectStep"));
}

TEST(KerasFunctions, SplitHasAnOutputForEachPart) {
  const std::string graph =
      Graph(Function("Split", R"("indices_or_sections": [1], "axis": 2)", R"(["steps", 0, 0])"));
  const auto with_outputs = [&](absl::string_view outputs) {
    return absl::StrReplaceAll(
        graph, {{R"("output_layers": [["f", 0, 0]])", absl::StrCat(R"("output_layers": )", outputs)}});
  };
  const auto model = Model::FromJson(with_outputs(R"([["f", 0, 1]])"), "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Classes(*model), ElementsAre("Reshape", "Cropping2D", "Reshape"));
  EXPECT_EQ(model->output_shape(), (Shape{3, 3}));
  EXPECT_EQ(model->rows()[1].output_shape, "[(None, 3, 1), (None, 3, 3)]");
  const auto both = Model::FromJson(with_outputs(R"([["f", 0, 1], ["f", 0, 0]])"), "m");
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->outputs().size(), 2u);
  EXPECT_EQ(both->outputs()[1].shape, (Shape{3, 1}));
  EXPECT_THAT(ModelFault(with_outputs(R"([["f", 0, 2]])")),
              HasSubstr("layer 'f' (Split), line 1: outputs: it has 2, not 3"));
}

TEST(KerasFunctions, OneHotEncodesIntegers) {
  const auto model = Model::FromJson(
      R"({"class_name": "Functional", "config": {"name": "m", "layers": [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1], "dtype": "int32"}},
        {"class_name": "OneHot", "module": "keras.src.ops.nn", "name": "f",
         "config": {"name": "f", "num_classes": 5, "axis": -1, "sparse": false},
         "inbound_nodes": [{"args": [["x", 0, 0]], "kwargs": {}}]}],
      "input_layers": ["x"], "output_layers": ["f"]}})",
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->inputs()[0].dtype, DType::kInt32);
  EXPECT_EQ(model->output_shape(), (Shape{1, 5}));
}

// Two booleans, as Keras writes them.
TEST(KerasFunctions, SumsOfBooleansAreRefused) {
  constexpr char kBoolean[] = R"({"class_name": "__keras_tensor__",
                                  "config": {"shape": [null, 4], "dtype": "bool", "keras_history": ["row", 0, 0]}})";
  for (const char* const function : {"Add", "Matmul"}) {
    EXPECT_THAT(ModelFault(Graph(Function(function, "", absl::StrCat(kBoolean, ", ", kBoolean)) +
                                 R"(, {"class_name": "Dense", "config": {"name": "d", "units": 1},
                                      "inbound_nodes": [["row"]]})")),
                HasSubstr(absl::StrCat("layer 'f': a ", function,
                                       " of booleans is not supported: cast them to float32, or use")));
  }
}

// A model of the input "x", whose layers are given, with the output "f".
absl::StatusOr<Model> OfIds(absl::string_view type, absl::string_view layers) {
  return Model::FromJson(
      absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4], "dtype": ")",
                   type, R"("}}, )", layers, R"(], "input_layers": ["x"], "output_layers": ["f"]}})"),
      "m");
}

TEST(KerasFunctions, IntegersThatAreComparedStayIntegers) {
  const std::string compared = Function("Greater", "", R"(["x", 0, 0], 3)");
  EXPECT_EQ(OfIds("int32", compared)->inputs()[0].dtype, DType::kInt32);
  EXPECT_EQ(OfIds("int64", compared)->inputs()[0].dtype, DType::kInt64);
  // A float32 holds all values of these types.
  for (const char* const type : {"float32", "uint8", "bool"})
    EXPECT_EQ(OfIds(type, compared)->inputs()[0].dtype, DType::kFloat32) << type;
  // Behind changes of the shape and of the type.
  const std::string equal = Function("Equal", "", R"(["c", 0, 0], ["x", 0, 0])");
  const std::string cast = absl::StrReplaceAll(Function("Cast", R"("dtype": "int64")", R"(["x", 0, 0])"),
                                               {{R"("name": "f")", R"("name": "c")"}});
  EXPECT_EQ(OfIds("int32", absl::StrCat(cast, ", ", equal))->inputs()[0].dtype, DType::kInt32);
  // Not what is no condition.
  EXPECT_EQ(OfIds("int32", Function("Maximum", "", R"(["x", 0, 0], 3)"))->inputs()[0].dtype, DType::kFloat32);
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
  EXPECT_THAT(Classes(*model), ElementsAre("Permute", "Reshape", "GlobalSumPooling1D", "Reshape"));
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

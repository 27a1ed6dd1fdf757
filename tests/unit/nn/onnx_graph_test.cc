// The ONNX graphs of models: operations, layouts, names and constants. tests/interop checks with onnxruntime
// that they compute the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "nn/layer/config_reader.h"
#include "nn/model.h"
#include "nn/model_builder.h"
#include "nn/onnx_model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The graph with parameters 0, 1, 2, ...
OnnxGraph GraphOf(absl::string_view text) {
  const auto model = Model::FromJson(text, "model");
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<float> parameters(static_cast<size_t>(model->num_parameters()));
  std::iota(parameters.begin(), parameters.end(), 0.0f);
  auto graph = MakeOnnxGraph(*model, parameters);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

std::vector<std::string> Operations(const OnnxGraph& graph) {
  std::vector<std::string> operations;
  for (const OnnxNode& node : graph.nodes) operations.push_back(node.op_type);
  return operations;
}

const OnnxTensor& Constant(const OnnxGraph& graph, absl::string_view name) {
  const auto found = std::find_if(graph.constants.begin(), graph.constants.end(),
                                  [&](const OnnxTensor& tensor) { return tensor.name == name; });
  EXPECT_NE(found, graph.constants.end()) << name;
  return *found;
}

std::vector<int64_t> Ints(const OnnxNode& node, absl::string_view name) {
  for (const OnnxAttribute& attribute : node.attributes) {
    if (attribute.name == name) return std::get<std::vector<int64_t>>(attribute.value);
  }
  return {};
}

std::string Image(absl::string_view layers) {
  return SequentialOf(absl::StrCat(
      R"({"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [null, 4, 4, 2]}}, )",
      layers));
}

TEST(OnnxGraph, ConvolutionChainsAreTransposedOnlyAtTheirEnds) {
  const OnnxGraph graph = GraphOf(kHandWritten);
  EXPECT_THAT(Operations(graph),
              ElementsAre("Transpose", "Conv", "Relu", "MaxPool", "Conv", "Relu", "MaxPool", "Conv", "Relu",
                          "Transpose", "Flatten", "Gemm", "Relu", "Gemm"));
  EXPECT_THAT(Ints(graph.nodes[0], "perm"), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(Ints(graph.nodes[9], "perm"), ElementsAre(0, 2, 3, 1));
}

TEST(OnnxGraph, InputsAndOutputHaveTheModelsShapesAndNames) {
  const OnnxGraph graph = GraphOf(Image(
      R"({"class_name": "Flatten"}, {"class_name": "Dense", "config": {"name": "scores", "units": 3}})"));
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.inputs[0].name, "image");
  EXPECT_EQ(graph.inputs[0].shape, Shape({4, 4, 2}));
  EXPECT_EQ(graph.outputs[0].name, "scores");
  EXPECT_EQ(graph.outputs[0].shape, Shape({3}));
  EXPECT_EQ(graph.nodes.back().output, "scores");
}

TEST(OnnxGraph, AKernelIsTransposedToFilterChannelRowColumn) {
  const OnnxGraph graph = GraphOf(Image(
      R"({"class_name": "Conv2D", "config": {"name": "conv", "filters": 3, "kernel_size": [1, 2], "use_bias": false}})"));
  const OnnxTensor& kernel = Constant(graph, "conv/kernel");
  EXPECT_EQ(kernel.shape, Shape({3, 2, 1, 2}));
  // Element [0, column, channel, filter] of Keras' [1, 2, 2, 3] is 6 column + 3 channel + filter.
  EXPECT_THAT(std::get<std::vector<float>>(kernel.values), ElementsAre(0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11));
}

TEST(OnnxGraph, EachFilterOfADepthwiseKernelHasItsChannel) {
  const OnnxGraph graph = GraphOf(Image(
      R"({"class_name": "DepthwiseConv2D", "config": {"name": "conv", "kernel_size": [1, 2], "depth_multiplier": 2,
                                                      "use_bias": false}})"));
  const OnnxTensor& kernel = Constant(graph, "conv/kernel");
  EXPECT_EQ(kernel.shape, Shape({4, 1, 1, 2}));
  // Keras' [0, column, channel, m] is 4 column + 2 channel + m; filter 2 channel + m.
  EXPECT_THAT(std::get<std::vector<float>>(kernel.values), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(OnnxGraph, TheOddPaddingOfSameIsAfter) {
  const OnnxGraph graph = GraphOf(Image(
      R"({"class_name": "Conv2D", "config": {"filters": 1, "kernel_size": [2, 3], "padding": "same"}})"));
  EXPECT_THAT(Ints(graph.nodes[1], "pads"), ElementsAre(0, 1, 1, 1));  // top, left, bottom, right
}

TEST(OnnxGraph, OutputPaddingOfATransposedConvolutionIsAtTheEnd) {
  const OnnxGraph graph = GraphOf(Image(
      R"({"class_name": "Conv2DTranspose", "config": {"filters": 1, "kernel_size": [1, 4], "strides": 2,
                                                      "padding": "same"}})"));
  EXPECT_THAT(Ints(graph.nodes[1], "pads"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Ints(graph.nodes[1], "output_padding"), ElementsAre(1, 0));
}

TEST(OnnxGraph, ALayerThatIsCalledTwiceHasItsVariablesOnce) {
  const OnnxGraph graph = GraphOf(R"({"class_name": "Functional", "config": {"name": "shared", "layers": [
    {"class_name": "InputLayer", "config": {"name": "a", "batch_shape": [null, 2]}, "name": "a", "inbound_nodes": []},
    {"class_name": "InputLayer", "config": {"name": "b", "batch_shape": [null, 2]}, "name": "b", "inbound_nodes": []},
    {"class_name": "Dense", "config": {"name": "tower", "units": 2}, "name": "tower",
     "inbound_nodes": [[["a", 0, 0, {}]], [["b", 0, 0, {}]]]},
    {"class_name": "Add", "config": {"name": "sum"}, "name": "sum",
     "inbound_nodes": [[["tower", 0, 0, {}], ["tower", 1, 0, {}]]]}
    ], "input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["sum", 0, 0]]}})");
  ASSERT_THAT(Operations(graph), ElementsAre("Gemm", "Gemm", "Add"));
  EXPECT_EQ(graph.constants.size(), 2u);
  EXPECT_NE(graph.nodes[0].output, graph.nodes[1].output);
  EXPECT_THAT(graph.nodes[2].inputs, ElementsAre(graph.nodes[0].output, graph.nodes[1].output));
}

TEST(OnnxGraph, AModelWithoutOperationsHasAnIdentityNode) {
  const OnnxGraph graph = GraphOf(Image(R"({"class_name": "Dropout", "config": {"rate": 0.5}})"));
  ASSERT_THAT(Operations(graph), ElementsAre("Identity"));
  EXPECT_NE(graph.outputs[0].name, graph.inputs[0].name);
}

TEST(OnnxGraph, ALayerWithoutOnnxOperationsIsNamed) {
  class Odd final : public Layer {
   public:
    Odd() : Layer("odd", "OddLayer") {}
    absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override { return inputs[0]; }
    std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
    absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams&, kernels::Device&) const override {
      return absl::UnimplementedError("never made");
    }
  };
  ModelBuilder builder;
  ReadLayer x;
  x.name = "x";
  const int input = builder.AddInput(x, {2});
  ReadLayer layer;
  layer.name = "odd";
  layer.layer = std::make_shared<Odd>();
  ASSERT_TRUE(builder.AddNode(layer, {input}).ok());
  const Model model = builder.Finish({}, "{}");
  const auto graph = MakeOnnxGraph(model, absl::Span<const float>());
  ASSERT_TRUE(absl::IsUnimplemented(graph.status())) << graph.status();
  EXPECT_THAT(graph.status().message(), HasSubstr("layer 'odd' (OddLayer)"));
}

TEST(OnnxGraph, ARaggedInputIsPaddedByNegativeNumbers) {
  const OnnxGraph graph = GraphOf(R"({"config": {"layers": [
      {"class_name": "InputLayer", "config": {"name": "ids", "batch_input_shape": [null, null], "dtype": "int64",
                                              "ragged": true}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}},
      {"class_name": "GlobalAveragePooling1D", "config": {"name": "mean"}}]}})");
  EXPECT_TRUE(graph.inputs[0].ragged);
  EXPECT_EQ(graph.inputs[0].dtype, DType::kInt64);
  EXPECT_THAT(Operations(graph), ElementsAre("Less", "Where", "Gather", "Not", "Cast", "Unsqueeze", "MatMul",
                                             "ReduceSum", "Max", "Div", "ReduceMean"));
  EXPECT_EQ(graph.outputs[0].shape, Shape({2}));
}

}  // namespace
}  // namespace cairn::nn

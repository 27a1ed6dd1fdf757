// Whole networks that contain every layer: shapes and variables are compared to Keras, gradients to central
// differences of the loss, and training to inference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "common/core/random.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

// Squeeze and excitation after statistics that are variables, and every merge that broadcasts.
constexpr char kExcited[] = R"({"class_name": "Functional", "config": {"name": "excited", "layers": [
  {"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [null, 8, 8, 3]}, "inbound_nodes": []},
  {"class_name": "Normalization", "config": {"name": "norm", "axis": [3]}, "inbound_nodes": [["image"]]},
  {"class_name": "Conv2D", "config": {"name": "stem", "filters": 16, "kernel_size": 3}, "inbound_nodes": [["norm"]]},
  {"class_name": "GlobalAveragePooling2D", "config": {"name": "squeeze", "keepdims": true},
   "inbound_nodes": [["stem"]]},
  {"class_name": "Conv2D", "config": {"name": "excite", "filters": 16, "kernel_size": 1, "activation": "sigmoid"},
   "inbound_nodes": [["squeeze"]]},
  {"class_name": "Multiply", "config": {"name": "multiply"}, "inbound_nodes": [["stem", "excite"]]},
  {"class_name": "GlobalMaxPooling2D", "config": {"name": "pool"}, "inbound_nodes": [["stem"]]},
  {"class_name": "Dense", "config": {"name": "gate", "units": 16}, "inbound_nodes": [["pool"]]},
  {"class_name": "Subtract", "config": {"name": "subtract"}, "inbound_nodes": [["multiply", "gate"]]},
  {"class_name": "Maximum", "config": {"name": "maximum"}, "inbound_nodes": [["gate", "subtract"]]},
  {"class_name": "Minimum", "config": {"name": "minimum"}, "inbound_nodes": [["maximum", "excite"]]},
  {"class_name": "Average", "config": {"name": "average"}, "inbound_nodes": [["minimum", "stem", "gate"]]},
  {"class_name": "Add", "config": {"name": "add"}, "inbound_nodes": [["excite", "average"]]},
  {"class_name": "Dropout", "config": {"name": "drop", "rate": 0.4, "noise_shape": [null, 1, 1, 16]},
   "inbound_nodes": [["add"]]},
  {"class_name": "GlobalAveragePooling2D", "config": {"name": "mean"}, "inbound_nodes": [["drop"]]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "inbound_nodes": [["mean"]]}
  ], "input_layers": [["image", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

struct Network {
  const char* name;
  std::string layers;  // the layers of a Sequential, or a whole document
  Shape output;
  int64_t parameters;
};

std::string Images(absl::string_view layers) {
  return SequentialOf(
      absl::StrCat(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 3]}}, )", layers));
}

std::string Rows(absl::string_view layers) {
  return SequentialOf(
      absl::StrCat(R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6]}}, )", layers));
}

// A residual block as Keras 3 writes it: the skip connection is added to the output of two convolutions.
constexpr char kResidual[] = R"({"class_name": "Functional", "config": {"name": "residual", "layers": [
  {"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [null, 8, 8, 3]}, "name": "image",
   "inbound_nodes": []},
  {"class_name": "Conv2D", "config": {"name": "stem", "filters": 16, "kernel_size": [3, 3], "padding": "same"},
   "name": "stem", "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"shape": [null, 8, 8, 3], "dtype": "float32", "keras_history": ["image", 0, 0]}}], "kwargs": {}}]},
  {"class_name": "BatchNormalization", "config": {"name": "bn"}, "name": "bn",
   "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"keras_history": ["stem", 0, 0]}}], "kwargs": {"mask": null}}]},
  {"class_name": "Activation", "config": {"name": "relu", "activation": "relu"}, "name": "relu",
   "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"keras_history": ["bn", 0, 0]}}], "kwargs": {}}]},
  {"class_name": "Conv2D", "config": {"name": "inner", "filters": 16, "kernel_size": [3, 3], "padding": "same",
   "use_bias": false}, "name": "inner", "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"keras_history": ["relu", 0, 0]}}], "kwargs": {}}]},
  {"class_name": "Add", "config": {"name": "add"}, "name": "add",
   "inbound_nodes": [{"args": [[{"class_name": "__keras_tensor__", "config": {"keras_history": ["relu", 0, 0]}},
     {"class_name": "__keras_tensor__", "config": {"keras_history": ["inner", 0, 0]}}]], "kwargs": {}}]},
  {"class_name": "GlobalAveragePooling2D", "config": {"name": "pool"}, "name": "pool",
   "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"keras_history": ["add", 0, 0]}}], "kwargs": {}}]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "name": "scores",
   "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__",
     "config": {"keras_history": ["pool", 0, 0]}}], "kwargs": {}}]}
  ], "input_layers": [["image", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

// Two inputs, as Keras 2 writes them, through two shared layers. The input of the second has a gradient.
constexpr char kShared[] = R"({"class_name": "Functional", "config": {"name": "shared", "layers": [
  {"class_name": "InputLayer", "config": {"name": "left", "batch_input_shape": [null, 6]}, "name": "left",
   "inbound_nodes": []},
  {"class_name": "InputLayer", "config": {"name": "right", "batch_input_shape": [null, 6]}, "name": "right",
   "inbound_nodes": []},
  {"class_name": "Dense", "config": {"name": "tower", "units": 4, "activation": "tanh"}, "name": "tower",
   "inbound_nodes": [[["left", 0, 0, {}]], [["right", 0, 0, {}]]]},
  {"class_name": "Dense", "config": {"name": "roof", "units": 4}, "name": "roof",
   "inbound_nodes": [[["tower", 0, 0, {}]], [["tower", 1, 0, {}]]]},
  {"class_name": "Concatenate", "config": {"name": "both", "axis": -1}, "name": "both",
   "inbound_nodes": [[["roof", 0, 0, {}], ["roof", 1, 0, {}]]]},
  {"class_name": "Multiply", "config": {"name": "gate"}, "name": "gate",
   "inbound_nodes": [[["roof", 0, 0, {}], ["roof", 1, 0, {}]]]},
  {"class_name": "Concatenate", "config": {"name": "all"}, "name": "all",
   "inbound_nodes": [[["both", 0, 0, {}], ["gate", 0, 0, {}]]]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "name": "scores",
   "inbound_nodes": [[["all", 0, 0, {}]]]}
  ], "input_layers": [["left", 0, 0], ["right", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

// Dot products and crosses of two towers. The second cross is of one tensor with itself.
constexpr char kCrossed[] = R"({"class_name": "Functional", "config": {"name": "crossed", "layers": [
  {"class_name": "InputLayer", "config": {"name": "left", "batch_shape": [null, 6]}, "inbound_nodes": []},
  {"class_name": "InputLayer", "config": {"name": "right", "batch_shape": [null, 6]}, "inbound_nodes": []},
  {"class_name": "Dense", "config": {"name": "a", "units": 3}, "inbound_nodes": [["left"]]},
  {"class_name": "Dense", "config": {"name": "b", "units": 3}, "inbound_nodes": [["right"]]},
  {"class_name": "FeatureCross", "registered_name": "keras_rs>FeatureCross", "config": {"name": "low_rank",
   "projection_dim": 2, "diag_scale": 0.5, "pre_activation": "tanh"}, "inbound_nodes": [["a", "b"]]},
  {"class_name": "FeatureCross", "config": {"name": "full", "projection_dim": null},
   "inbound_nodes": [["low_rank"]]},
  {"class_name": "Dot", "config": {"name": "cosine", "axes": -1, "normalize": true},
   "inbound_nodes": [["a", "low_rank"]]},
  {"class_name": "DotInteraction", "module": "keras_rs.src.layers.feature_interaction.dot_interaction",
   "config": {"name": "pairs", "self_interaction": true}, "inbound_nodes": [["a", "b", "full"]]},
  {"class_name": "DotInteraction", "config": {"name": "square", "skip_gather": true},
   "inbound_nodes": [["a", "low_rank"]]},
  {"class_name": "Concatenate", "config": {"name": "all"},
   "inbound_nodes": [["cosine", "pairs", "square", "full"]]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "inbound_nodes": [["all"]]}
  ], "input_layers": [["left", 0, 0], ["right", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

// A model with a batch normalization that is called on two inputs, and the layers of keras.applications.
constexpr char kNested[] = R"({"class_name": "Functional", "config": {"name": "nested", "layers": [
  {"class_name": "InputLayer", "config": {"name": "left", "batch_shape": [null, 4, 4, 2]}, "inbound_nodes": []},
  {"class_name": "InputLayer", "config": {"name": "right", "batch_shape": [null, 4, 4, 2]}, "inbound_nodes": []},
  {"class_name": "Sequential", "config": {"name": "tower", "layers": [
    {"class_name": "Conv2D", "config": {"filters": 16, "kernel_size": 3}},
    {"class_name": "BatchNormalization", "config": {"momentum": 0.9}},
    {"class_name": "LayerScale", "config": {"init_values": 0.5, "projection_dim": 16}}]},
   "inbound_nodes": [["left"], ["right"]]},
  {"class_name": "StochasticDepth", "config": {"name": "depth", "drop_path_rate": 0.4},
   "inbound_nodes": [[["tower", 0, 0]]]},
  {"class_name": "CustomScaleLayer", "config": {"name": "sum", "scale": 0.25},
   "inbound_nodes": [[["depth", 0, 0], ["tower", 1, 0]]]},
  {"class_name": "GlobalAveragePooling2D", "config": {"name": "mean"}, "inbound_nodes": [["sum"]]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "inbound_nodes": [["mean"]]}
  ], "input_layers": [["left", 0, 0], ["right", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

// Attention in all its forms. The heads of `grouped` share keys; `scaled` has a key of its own.
constexpr char kAttentive[] = R"({"class_name": "Functional", "config": {"name": "attentive", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4, 6]}, "inbound_nodes": []},
  {"class_name": "InputLayer", "config": {"name": "seen", "batch_shape": [null, 4]}, "inbound_nodes": []},
  {"class_name": "MultiHeadAttention", "config": {"name": "self", "num_heads": 2, "key_dim": 3, "value_dim": 2,
   "dropout": 0.2}, "inbound_nodes": [{"args": ["x", "x"], "kwargs": {"key_mask": "seen", "use_causal_mask": true}}]},
  {"class_name": "Add", "config": {"name": "add"}, "inbound_nodes": [["x", "self"]]},
  {"class_name": "RMSNormalization", "config": {"name": "rms"}, "inbound_nodes": [["add"]]},
  {"class_name": "GroupQueryAttention", "config": {"name": "grouped", "head_dim": 2, "num_query_heads": 4,
   "num_key_value_heads": 2, "use_bias": false}, "inbound_nodes": [{"args": [], "kwargs": {"query": "rms",
   "value": "add"}}]},
  {"class_name": "EinsumDense", "config": {"name": "split", "equation": "abc,cde->abde", "bias_axes": "e",
   "output_shape": [null, 2, 3], "activation": "tanh"}, "inbound_nodes": [["grouped"]]},
  {"class_name": "EinsumDense", "config": {"name": "join", "equation": "abde,def->abf", "output_shape": [4, 4]},
   "inbound_nodes": [["split"]]},
  {"class_name": "Attention", "config": {"name": "scaled", "use_scale": true},
   "inbound_nodes": [{"args": [["join", "grouped", "join"]], "kwargs": {}}]},
  {"class_name": "GlobalAveragePooling1D", "config": {"name": "mean"}, "inbound_nodes": [["scaled"]]},
  {"class_name": "Dense", "config": {"name": "scores", "units": 5}, "inbound_nodes": [["mean"]]}
  ], "input_layers": [["x", 0, 0], ["seen", 0, 0]], "output_layers": [["scores", 0, 0]]}})";

const Network kNetworks[] = {
    {"Attentive", kAttentive, {5}, (42 + 42 + 28 + 30) + 6 + (48 + 24 + 24 + 48) + (36 + 3) + 24 + 1 + 35},
    {"Crossed", kCrossed, {5}, 21 + 21 + 15 + 12 + 75},
    {"Activations",
     Rows(R"({"class_name": "Dense", "config": {"units": 7, "activation": "gelu"}},
             {"class_name": "Dense", "config": {"units": 7, "activation": "selu"}},
             {"class_name": "LeakyReLU"}, {"class_name": "ELU", "config": {"alpha": 0.5}},
             {"class_name": "Dense", "config": {"units": 7, "activation": "silu"}},
             {"class_name": "Activation", "config": {"activation": "softplus"}},
             {"class_name": "Dense", "config": {"units": 5, "activation": "sigmoid"}},
             {"class_name": "Dense", "config": {"units": 5}}, {"class_name": "Softmax"})"),
     {5},
     49 + 56 + 56 + 40 + 30},
    {"Convolutions",
     Images(R"({"class_name": "ZeroPadding2D", "config": {"padding": [[1, 0], [2, 1]]}},
               {"class_name": "Conv2D", "config": {"filters": 16, "kernel_size": 3, "activation": "tanh"}},
               {"class_name": "DepthwiseConv2D", "config": {"kernel_size": 3, "padding": "same",
                                                            "activation": "sigmoid"}},
               {"class_name": "SeparableConv2D", "config": {"filters": 6, "kernel_size": 3, "depth_multiplier": 2,
                                                            "activation": "relu6"}},
               {"class_name": "Conv2DTranspose", "config": {"filters": 3, "kernel_size": 2, "strides": 2,
                                                            "activation": "elu"}},
               {"class_name": "AveragePooling2D"}, {"class_name": "GlobalMaxPooling2D"},
               {"class_name": "Dense", "config": {"units": 5}})"),
     {5},
     (27 * 16 + 16) + (9 * 16 + 16) + (9 * 16 * 2 + 32 * 6 + 6) + (4 * 6 * 3 + 3) + (3 * 5 + 5)},
    {"Sequences",
     SequentialOf(
         R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6], "dtype": "int32"}},
                     {"class_name": "Embedding", "config": {"input_dim": 10, "output_dim": 4}},
                     {"class_name": "Conv1D", "config": {"filters": 8, "kernel_size": 3, "activation": "silu"}},
                     {"class_name": "LayerNormalization"},
                     {"class_name": "Dense", "config": {"units": 3, "activation": "relu"}},
                     {"class_name": "Reshape", "config": {"target_shape": [2, -1]}},
                     {"class_name": "Flatten"}, {"class_name": "Dense", "config": {"units": 5}})"),
     {5},
     40 + (3 * 4 * 8 + 8) + 16 + (8 * 3 + 3) + (12 * 5 + 5)},
    {"ImagesInSteps",
     SequentialOf(
         R"({"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 2, "return_sequences": true,
                "recurrent_dropout": 0.3, "input_shape": [3, 4, 3, 2]}},
            {"class_name": "ConvLSTM2D", "config": {"filters": 1, "kernel_size": [2, 1], "padding": "same",
                "dropout": 0.3, "recurrent_dropout": 0.2, "use_bias": false}},
            {"class_name": "Flatten"}, {"class_name": "Dense", "config": {"units": 5}})"),
     {5},
     (4 * 2 * 8 + 4 * 2 * 8 + 8) + (2 * 2 * 4 + 2 * 1 * 4) + (3 * 2 * 5 + 5)},
    {"Averaged",
     SequentialOf(
         R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6], "dtype": "int64"}},
                     {"class_name": "Embedding", "config": {"input_dim": 10, "output_dim": 4}},
                     {"class_name": "GlobalAveragePooling1D"}, {"class_name": "Dense", "config": {"units": 5}})"),
     {5},
     40 + (4 * 5 + 5)},
    {"Recurrent",
     SequentialOf(
         R"({"class_name": "LSTM", "config": {"units": 4, "return_sequences": true, "recurrent_dropout": 0.3,
                                              "dropout": 0.2, "input_shape": [5, 6]}},
            {"class_name": "Bidirectional", "config": {"merge_mode": "concat", "layer": {"class_name": "GRU",
                "config": {"units": 3, "return_sequences": true, "recurrent_dropout": 0.3}}}},
            {"class_name": "TimeDistributed", "config": {"layer": {"class_name": "Dense", "config": {"units": 3}}}},
            {"class_name": "GRU", "config": {"units": 3, "reset_after": false, "go_backwards": true,
                                             "return_sequences": true}},
            {"class_name": "SimpleRNN", "config": {"units": 5}})"),
     {5},
     16 * (6 + 4 + 1) + 2 * 9 * (4 + 3 + 2) + (6 * 3 + 3) + 9 * (3 + 3 + 1) + 5 * (3 + 5 + 1)},
    {"Masked",
     SequentialOf(
         R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 6], "dtype": "int32"}},
            {"class_name": "Embedding", "config": {"input_dim": 10, "output_dim": 4, "mask_zero": true}},
            {"class_name": "Bidirectional", "config": {"merge_mode": "ave", "layer": {"class_name": "LSTM",
                "config": {"units": 3, "return_sequences": true}}}},
            {"class_name": "Dense", "config": {"units": 5}}, {"class_name": "GlobalAveragePooling1D"})"),
     {5},
     40 + 2 * 12 * (4 + 3 + 1) + (3 * 5 + 5)},
    {"Normalized",
     Images(R"({"class_name": "Rescaling", "config": {"scale": 2, "offset": -1}},
               {"class_name": "Normalization", "config": {"mean": [0, 0.5, 1], "variance": [1, 4, 0.25]}},
               {"class_name": "BatchNormalization", "config": {"momentum": 0.9}},
               {"class_name": "Conv2D", "config": {"filters": 8, "kernel_size": 3, "kernel_regularizer":
                   {"class_name": "L1L2", "config": {"l1": 0.01, "l2": 0.02}}}},
               {"class_name": "BatchNormalization", "config": {"scale": false}},
               {"class_name": "ReLU", "config": {"max_value": 3, "negative_slope": 0.1}},
               {"class_name": "Dropout", "config": {"rate": 0.4}},
               {"class_name": "MaxPooling2D"}, {"class_name": "Flatten"},
               {"class_name": "Dense", "config": {"units": 5, "bias_regularizer": "l2"}})"),
     {5},
     12 + (27 * 8 + 8) + 24 + (72 * 5 + 5)},
    {"Residual", kResidual, {5}, (27 * 16 + 16) + 64 + 9 * 16 * 16 + 85},
    {"Shared", kShared, {5}, 28 + 20 + 65},
    {"Nested", kNested, {5}, (18 * 16 + 16) + 64 + 16 + 85},
    {"Excited", kExcited, {5}, (3 + 3 + 1) + (27 * 16 + 16) + 2 * (16 * 16 + 16) + (16 * 5 + 5)},
};

// The devices that run the networks: the CPU, and the CUDA backend's own kernels on the CPU, which have
// memory of their own.
struct Maker {
  const char* name;
  std::unique_ptr<kernels::Device> (*make)();
};
const Maker kMakers[] = {
    {"Cpu", [] { return kernels::CreateCpuDevice(0, 1).value(); }},
    {"Cuda", [] { return kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value(); }},
};

class Layers : public testing::TestWithParam<std::tuple<Network, Maker>> {
 protected:
  static constexpr int64_t kExamples = 6;

  const Network& network() const { return std::get<Network>(GetParam()); }

  void SetUp() override {
    auto model = Model::FromJson(network().layers, "model.json");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = std::make_unique<Model>(*std::move(model));
    const bool softmax = network().name == std::string("Activations");
    auto replica = Replica::Create(*model_, LossSpec{.from_logits = !softmax}, *device_);
    ASSERT_TRUE(replica.ok()) << replica.status();
    replica_ = *std::move(replica);
    Random random(3, "inputs");
    const bool indices = IsInteger(model_->inputs()[0].dtype);
    std::vector<float> values;
    for (int64_t i = 0; i < kExamples * model_->input_shape().num_elements(); ++i) {
      values.push_back(indices ? static_cast<float>(random.NextBelow(10)) : random.NextUniform(-1, 1));
    }
    inputs_ = ModelInputs(*model_, kExamples, values);
    for (int64_t i = 0; i < kExamples; ++i) targets_.push_back(static_cast<float>(i % 5));
  }

  BatchView Batch(uint64_t seed = 1) const {
    return {
        .examples = kExamples, .inputs = inputs_.views(), .targets = targets_, .weights = {}, .seed = seed};
  }
  double TrainingLoss(const std::vector<float>& parameters, std::vector<float>* gradients = nullptr) {
    std::vector<float> unused(parameters.size());
    std::vector<float>& written = gradients == nullptr ? unused : *gradients;
    const auto result = replica_->ForwardBackward(parameters, Batch(), absl::MakeSpan(written), [](int) {});
    EXPECT_TRUE(result.ok()) << result.status();
    return result->sums.loss / kExamples;
  }

  const std::unique_ptr<kernels::Device> device_ = std::get<Maker>(GetParam()).make();
  std::unique_ptr<Model> model_;
  std::unique_ptr<Replica> replica_;
  ModelInputs inputs_;
  std::vector<float> targets_;
};

TEST_P(Layers, ShapesAndParameterCountsMatchKeras) {
  EXPECT_EQ(model_->output_shape(), network().output);
  EXPECT_EQ(model_->num_parameters(), network().parameters);
}

TEST_P(Layers, GradientsMatchFiniteDifferencesOfTheLoss) {
  const std::vector<float> parameters = model_->InitialParameters(5);
  std::vector<float> gradients(parameters.size(), std::nanf(""));
  TrainingLoss(parameters, &gradients);
  for (const ModelVariable& variable : model_->variables()) {
    if (!variable.trainable()) continue;
    SCOPED_TRACE(variable.name);
    // The slope along the gradient's direction is the gradient's length.
    double squares = 0;
    const auto begin = static_cast<size_t>(variable.offset);
    const auto count = static_cast<size_t>(variable.shape.num_elements());
    for (size_t i = begin; i < begin + count; ++i) squares += double{gradients[i]} * gradients[i];
    const double length = std::sqrt(squares);
    ASSERT_TRUE(std::isfinite(length));
    if (length < 1e-4) continue;  // a bias before a normalization
    const double step = 2e-3;
    const auto loss_at = [&](double distance) {
      std::vector<float> moved = parameters;
      for (size_t i = begin; i < begin + count; ++i) {
        moved[i] += static_cast<float>(distance * gradients[i] / length);
      }
      return TrainingLoss(moved);
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), length, 2e-3 * (1 + length));
  }
}

TEST_P(Layers, EveryVariableIsAnnouncedOnceWithItsGradient) {
  const std::vector<float> parameters = model_->InitialParameters(5);
  std::vector<float> gradients(parameters.size(), std::nanf("")), announced(parameters.size(), std::nanf(""));
  const auto result =
      replica_->ForwardBackward(parameters, Batch(), absl::MakeSpan(gradients), [&](int variable) {
        const ModelVariable& given = model_->variables()[static_cast<size_t>(variable)];
        for (int64_t i = 0; i < given.shape.num_elements(); ++i) {
          const auto at = static_cast<size_t>(given.offset + i);
          EXPECT_TRUE(std::isnan(announced[at])) << given.name << " was announced twice";
          announced[at] = gradients[at];
        }
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(announced, gradients);
  for (float gradient : gradients) ASSERT_TRUE(std::isfinite(gradient));
}

TEST_P(Layers, TheSameStepGivesTheSameBits) {
  const std::vector<float> parameters = model_->InitialParameters(5);
  std::vector<float> first(parameters.size()), second(parameters.size());
  EXPECT_EQ(TrainingLoss(parameters, &first), TrainingLoss(parameters, &second));
  EXPECT_EQ(first, second);
}

// A device that records steps does so from the second step on, with pinned gradients.
TEST_P(Layers, ARecordedStepReadsCurrentValues) {
  AlignedBuffer gradients(std::max<int64_t>(model_->num_parameters(), 1024));
  ASSERT_TRUE(replica_->Pin(gradients.span()).ok());
  const auto written = gradients.span().subspan(0, static_cast<size_t>(model_->num_parameters()));
  const auto run = [&](const std::vector<float>& parameters, uint64_t seed) {
    std::fill(written.begin(), written.end(), std::nanf(""));
    const auto result = replica_->ForwardBackward(parameters, Batch(seed), written, [](int) {});
    EXPECT_TRUE(result.ok()) << result.status();
    return std::pair(result->sums.loss, std::vector<float>(written.begin(), written.end()));
  };
  const std::vector<float> one = model_->InitialParameters(5), other = model_->InitialParameters(6);
  const auto first = run(one, 1);
  EXPECT_EQ(run(one, 1), first);
  const auto moved = run(other, 2);
  EXPECT_NE(moved, first);
  EXPECT_EQ(run(one, 1), first);
  EXPECT_EQ(run(other, 2), moved);
  replica_->Unpin();
}

INSTANTIATE_TEST_SUITE_P(, Layers, testing::Combine(testing::ValuesIn(kNetworks), testing::ValuesIn(kMakers)),
                         [](const testing::TestParamInfo<std::tuple<Network, Maker>>& tested) {
                           return absl::StrCat(std::get<Network>(tested.param).name, "_",
                                               std::get<Maker>(tested.param).name);
                         });

TEST(BatchNormalization, ReturnsBatchStatisticsAsGradientsAndInfersWithMovingStatistics) {
  const Model model =
      Model::FromJson(
          SequentialOf(R"({"class_name": "BatchNormalization", "config": {"name": "bn", "momentum": 0.75,
                                       "epsilon": 0.5, "input_shape": [1]}})"),
          "m")
          .value();
  ASSERT_EQ(model.variables().size(), 4u);
  EXPECT_EQ(model.variables()[2].name, "bn/moving_mean");
  EXPECT_EQ(model.variables()[3].moving_average_momentum, 0.75f);
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const std::vector<float> parameters = {2, 1, 3, 3.5f};  // gamma, beta, moving mean, moving variance
  const std::vector<float> inputs = {1, 3, 5, 7}, targets = {0, 0, 0, 0};
  std::vector<float> gradients(4);
  const BatchView batch = {.examples = 4, .inputs = FloatRows(4, inputs), .targets = targets};
  ASSERT_TRUE(replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).ok());
  EXPECT_EQ(gradients[2], 4);  // mean
  EXPECT_EQ(gradients[3], 5);  // biased variance
  const auto inferred = replica->Evaluate(parameters, batch);
  ASSERT_TRUE(inferred.ok());
  EXPECT_THAT(inferred->outputs, testing::ElementsAre(-1, 1, 3, 5));  // 2 (x - 3) / sqrt(3.5 + 0.5) + 1
}

TEST(Embedding, AnIndexOutsideTheTableNamesTheLayer) {
  for (const Maker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    const Model model =
        Model::FromJson(
            SequentialOf(R"({"class_name": "Embedding", "config": {"name": "words", "input_dim": 10,
                                       "output_dim": 2, "input_shape": [1]}}, {"class_name": "Flatten"})"),
            "m")
            .value();
    const auto device = maker.make();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<float> targets = {0, 0};
    const int64_t index = 10;
    const auto status =
        replica
            ->Evaluate(model.InitialParameters(1),
                       {.examples = 1, .inputs = {{DType::kInt64, {1, 1}, &index}}, .targets = targets})
            .status();
    EXPECT_EQ(status.message(), "layer 'words': index 10 in a table of 10 rows: expected 0 to 9");
  }
}

TEST(Normalization, StandardizesWithConstantStatisticsFromVariables) {
  for (const Maker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    const Model model =
        Model::FromJson(SequentialOf(R"({"class_name": "Normalization", "config": {"name": "n", "axis": -1,
                                         "mean": null, "variance": null, "input_shape": [2]}})"),
                        "m")
            .value();
    ASSERT_EQ(model.variables().size(), 3u);
    EXPECT_EQ(model.variables()[2].name, "n/count");
    EXPECT_EQ(model.InitialParameters(1), (std::vector<float>{0, 0, 1, 1, 0}));
    for (const ModelVariable& variable : model.variables()) EXPECT_EQ(variable.moving_average_momentum, 1.0f);
    const auto device = maker.make();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<float> parameters = {1, 2, 4, 0, 99};  // the second feature has no variance
    const std::vector<float> inputs = {5, 2, -1, 3}, targets = {0, 0, 0, 0};
    std::vector<float> gradients(5);
    const BatchView batch = {.examples = 2, .inputs = FloatRows(2, inputs), .targets = targets};
    const auto result = replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->outputs, testing::ElementsAre(2, 0, -1, 1 / 1e-7f));
    EXPECT_EQ(gradients, parameters);
  }
}

TEST(Normalization, StatisticsCoverTheLastAxes) {
  const auto outputs_of = [](absl::string_view config, const std::vector<float>& parameters) {
    const Model model =
        Model::FromJson(SequentialOf(absl::StrCat(R"({"class_name": "Normalization", "config": {)", config,
                                                  R"(, "input_shape": [2, 2, 1]}})")),
                        "m")
            .value();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<float> inputs = {1, 2, 3, 4}, targets(4);
    const auto result =
        replica->Evaluate(parameters, {.examples = 1, .inputs = FloatRows(1, inputs), .targets = targets});
    EXPECT_TRUE(result.ok()) << result.status();
    return std::vector<float>(result->outputs.begin(), result->outputs.end());
  };
  using testing::ElementsAre;
  EXPECT_THAT(outputs_of(R"("axis": [])", {1, 4, 7}), ElementsAre(0, 0.5f, 1, 1.5f));
  EXPECT_THAT(outputs_of(R"("axis": [2, 3])", {1, 0, 1, 4, 7}), ElementsAre(0, 1, 2, 2)) << "rows alike";
  EXPECT_THAT(outputs_of(R"("axis": [1, 2], "invert": true)", {1, 1, 1, 0, 4, 4, 4, 1, 7}),
              ElementsAre(3, 5, 7, 4));
  EXPECT_THAT(outputs_of(R"("axis": [1, 2, 3], "mean": [[[1], [1]], [[1], [0]]],
                            "variance": [[[4], [4]], [[4], [1]]])",
                         {}),
              ElementsAre(0, 0.5f, 1, 4));
}

TEST(Dropout, ANoiseShapeDropsWholeChannels) {
  for (const Maker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    const Model model = Model::FromJson(SequentialOf(R"({"class_name": "Dropout", "config": {"rate": 0.5,
                                         "noise_shape": [null, 1, 32], "input_shape": [4, 32]}})"),
                                        "m")
                            .value();
    const auto device = maker.make();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    constexpr size_t kExamples = 2, kRows = 4, kChannels = 32;
    const std::vector<float> inputs(kExamples * kRows * kChannels, 1.0f), targets(inputs.size());
    const auto result = replica->ForwardBackward(
        {}, {.examples = kExamples, .inputs = FloatRows(kExamples, inputs), .targets = targets}, {},
        [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    size_t kept = 0;
    for (size_t example = 0; example < kExamples; ++example) {
      for (size_t channel = 0; channel < kChannels; ++channel) {
        const auto at = [&](size_t row) {
          return result->outputs[(example * kRows + row) * kChannels + channel];
        };
        kept += at(0) == 2;
        for (size_t row = 0; row < kRows; ++row) {
          EXPECT_TRUE(at(row) == 0 || at(row) == 2) << at(row);
          EXPECT_EQ(at(row), at(0));
        }
      }
    }
    EXPECT_GT(kept, 0u);
    EXPECT_LT(kept, kExamples * kChannels);
  }
}

// The outputs of one layer, for inputs of 1 [3, 8, 8, 4].
struct TrainedAndInferred {
  std::vector<float> trained, inferred;
};
TrainedAndInferred OutputsOf(absl::string_view layer, kernels::Device& device, uint64_t seed = 1) {
  const Model model =
      Model::FromJson(
          SequentialOf(absl::StrCat(
              R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 4]}}, )", layer)),
          "m")
          .value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, device).value();
  const std::vector<float> inputs(size_t{3} * 8 * 8 * 4, 1.0f), targets(inputs.size());
  const BatchView batch = {
      .examples = 3, .inputs = FloatRows(3, inputs), .targets = targets, .weights = {}, .seed = seed};
  const auto trained = replica->ForwardBackward({}, batch, {}, [](int) {});
  EXPECT_TRUE(trained.ok()) << trained.status();
  TrainedAndInferred outputs;
  outputs.trained.assign(trained->outputs.begin(), trained->outputs.end());
  const auto inferred = replica->Evaluate({}, batch);
  EXPECT_TRUE(inferred.ok()) << inferred.status();
  outputs.inferred.assign(inferred->outputs.begin(), inferred->outputs.end());
  return outputs;
}

TEST(RandomLayers, ChangeTrainingByTheSeedAndNothingInInference) {
  const char* const kLayers[] = {
      R"({"class_name": "SpatialDropout2D", "config": {"rate": 0.5}})",
      R"({"class_name": "AlphaDropout", "config": {"rate": 0.5}})",
      R"({"class_name": "GaussianDropout", "config": {"rate": 0.5}})",
      R"({"class_name": "GaussianNoise", "config": {"stddev": 0.5}})",
      R"({"class_name": "RandomTranslation", "config": {"height_factor": 0.5, "width_factor": [0.1, 0.2],
          "fill_mode": "constant"}})",
      R"({"class_name": "RandomZoom", "config": {"height_factor": [0.1, 0.5], "fill_mode": "constant"}})",
      R"({"class_name": "RandomRotation", "config": {"factor": 0.2, "fill_mode": "constant", "fill_value": 3}})"};
  for (const Maker& maker : kMakers) {
    const auto device = maker.make();
    for (const char* layer : kLayers) {
      SCOPED_TRACE(testing::Message() << maker.name << ", " << layer);
      const TrainedAndInferred outputs = OutputsOf(layer, *device);
      EXPECT_THAT(outputs.inferred, testing::Each(1.0f));
      EXPECT_NE(outputs.trained, outputs.inferred);
      EXPECT_EQ(OutputsOf(layer, *device).trained, outputs.trained);
      EXPECT_NE(OutputsOf(layer, *device, 2).trained, outputs.trained);
    }
  }
}

TEST(RandomLayers, SpatialDropoutDropsWholeChannels) {
  for (const Maker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    const auto device = maker.make();
    const std::vector<float> outputs =
        OutputsOf(R"({"class_name": "SpatialDropout2D", "config": {"rate": 0.5}})", *device).trained;
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], outputs[i / 256 * 256 + i % 4]) << i;
      EXPECT_TRUE(outputs[i] == 0 || outputs[i] == 2) << outputs[i];
    }
  }
}

// The mean of a channel stays, differences from it grow by a factor of each image between 1.5 and 2, and values are
// cut to the range.
TEST(RandomLayers, RandomContrastScalesDifferencesFromTheMean) {
  for (const Maker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    const Model model = Model::FromJson(SequentialOf(R"({"class_name": "RandomContrast", "config": {
                                            "factor": [0, 1], "value_range": [-2, 1], "input_shape": [1, 3, 1]}})"),
                                        "m")
                            .value();
    const auto device = maker.make();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<float> inputs = {-0.25f, 0, 0.25f, -1, 0, 1}, targets(6);
    const auto result = replica->ForwardBackward(
        {}, {.examples = 2, .inputs = FloatRows(2, inputs), .targets = targets, .weights = {}, .seed = 1}, {},
        [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    const auto& y = result->outputs;
    EXPECT_NEAR(y[1], 0, 1e-6);
    EXPECT_NEAR(y[0], -y[2], 1e-6);
    EXPECT_TRUE(y[2] >= 0.25f && y[2] <= 0.5f) << y[2];
    EXPECT_TRUE(y[3] >= -2 && y[3] <= -1) << y[3];
    EXPECT_EQ(y[5], 1);
  }
}

// Keras 3 records the default of the call's argument, which fit() and predict() override. Keras 2 records what the user
// asked for.
TEST(RandomLayers, AreCalledForTrainingInFilesOfKeras3) {
  const auto model_with = [](absl::string_view call) {
    return Model::FromJson(
        absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
            {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 4, 4, 2]}, "inbound_nodes": []},
            {"class_name": "RandomFlip", "config": {"name": "flip"}, "inbound_nodes": [)",
                     call, R"(]}], "input_layers": [["in", 0, 0]], "output_layers": [["flip", 0, 0]]}})"),
        "m");
  };
  const auto of_keras3 = model_with(R"({"args": [{"class_name": "__keras_tensor__", "config":
      {"keras_history": ["in", 0, 0]}}], "kwargs": {"training": true}})");
  EXPECT_TRUE(of_keras3.ok()) << of_keras3.status();
  for (const char* training : {"true", "false"}) {
    const auto of_keras2 = model_with(absl::StrCat(R"([["in", 0, 0, {"training": )", training, "}]]"));
    EXPECT_THAT(std::string(of_keras2.status().message()),
                testing::HasSubstr(absl::StrCat("kwargs: training: ", training, " is not supported")));
  }
}

TEST(RandomLayers, AreRefusedBehindVariables) {
  const Model model =
      Model::FromJson(SequentialOf(R"({"class_name": "Conv2D", "config": {"filters": 2, "kernel_size": 1,
                                       "input_shape": [4, 4, 2]}},
                                      {"class_name": "RandomFlip", "config": {"name": "flip"}})"),
                      "m")
          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const std::vector<float> inputs(32), targets(32);
  std::vector<float> gradients(static_cast<size_t>(model.num_parameters()));
  const auto status =
      replica
          ->ForwardBackward(model.InitialParameters(1),
                            {.examples = 1, .inputs = FloatRows(1, inputs), .targets = targets},
                            absl::MakeSpan(gradients), [](int) {})
          .status();
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("layer 'flip' (RandomFlip) is behind layers with variables"));
}

TEST(TrainableFalse, FreezesALayersVariables) {
  const Model model =
      Model::FromJson(SequentialOf(R"({"class_name": "Dense", "config": {"units": 2, "input_shape": [3],
                                       "trainable": false}}, {"class_name": "Dense", "config": {"units": 1}})"),
                      "m")
          .value();
  std::vector<bool> trainable;
  for (const ModelVariable& variable : model.variables()) trainable.push_back(variable.trainable());
  EXPECT_THAT(trainable, testing::ElementsAre(false, false, true, true));
  EXPECT_EQ(model.variables()[0].moving_average_momentum, 1.0f);
}

TEST(Dropout, DiffersFromStepToStepAndIsAbsentInEvaluation) {
  const Model model =
      Model::FromJson(
          SequentialOf(R"({"class_name": "Dropout", "config": {"rate": 0.5, "input_shape": [64]}})"), "m")
          .value();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const std::vector<float> inputs(64, 1.0f), targets(64, 0.0f);
  const auto outputs = [&](uint64_t seed) {
    const auto result = replica->ForwardBackward(
        {}, {.examples = 1, .inputs = FloatRows(1, inputs), .targets = targets, .weights = {}, .seed = seed},
        {}, [](int) {});
    return std::vector<float>(result->outputs.begin(), result->outputs.end());
  };
  EXPECT_NE(outputs(1), outputs(2));
  EXPECT_EQ(outputs(3), outputs(3));
  const auto evaluated =
      replica->Evaluate({}, {.examples = 1, .inputs = FloatRows(1, inputs), .targets = targets});
  EXPECT_THAT(evaluated->outputs, testing::Each(1.0f));
}

}  // namespace
}  // namespace cairn::nn

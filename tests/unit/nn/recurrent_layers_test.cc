// Recurrent layers, masks of time steps and the layers that wrap others: outputs and gradients against Keras 3.15 on
// JAX (keras_recurrent/make.py and make_states.py), and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/support/source_dir.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr float kRecurrentTolerance = 2e-5f;

json CasesOf(const char* file) {
  return json::parse(ReadFile(InSource(absl::StrCat("tests/support/data/keras_recurrent/", file))).value());
}

// Models with states as inputs or outputs of their layers.
const json& CasesWithStates() {
  static const json* const cases = new json(CasesOf("states.json"));
  return *cases;
}

const json& Cases() {
  static const json* const cases = [] {
    auto* const all = new json(CasesOf("models.json"));
    all->update(CasesWithStates());
    return all;
  }();
  return *cases;
}

std::vector<float> Joined(const json& lists) {
  std::vector<float> joined;
  for (const json& list : lists) {
    for (const json& value : list) joined.push_back(value.get<float>());
  }
  return joined;
}

TEST(RecurrentLayers, OutputsAndGradientsAreThoseOfKeras) {
  for (const bool cuda : {false, true}) {
    for (const auto& [name, of] : Cases().items()) {
      SCOPED_TRACE(absl::StrCat(name, cuda ? " on CUDA" : ""));
      const auto model = Model::FromJson(of["model"].dump(), name);
      ASSERT_TRUE(model.ok()) << model.status();
      const std::vector<float> parameters = Joined(of["values"]), expected = Joined(of["gradients"]);
      ASSERT_EQ(static_cast<int64_t>(parameters.size()), model->num_parameters());
      const auto device =
          cuda ? kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value()
               : kernels::CreateCpuDevice(0, 2).value();
      const auto replica =
          Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
      const auto outputs = of["outputs"].get<std::vector<float>>();
      const auto weights = of["weights"].get<std::vector<float>>();
      // The gradient of the mean of (output - target)^2 over `count` outputs is that of the sum of weight * output.
      std::vector<float> targets = outputs;
      const auto count = static_cast<float>(outputs.size());
      for (size_t i = 0; i < targets.size(); ++i) targets[i] -= weights[i] * count / 2;
      const auto input_values = of["inputs"].get<std::vector<float>>();
      const int64_t examples =
          static_cast<int64_t>(input_values.size()) / model->input_shape().num_elements();
      const ModelInputs inputs(*model, examples, input_values);
      std::vector<float> gradients(parameters.size());
      const auto result = replica->ForwardBackward(
          parameters, {.examples = examples, .inputs = inputs.views(), .targets = targets},
          absl::MakeSpan(gradients), [](int) {});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_THAT(result->outputs, Pointwise(FloatNear(kRecurrentTolerance), outputs));
      EXPECT_THAT(gradients, Pointwise(FloatNear(20 * kRecurrentTolerance), expected));
    }
  }
}

TEST(RecurrentLayers, LossesOfThreeStepsWithStatesAreThoseOfKeras) {
  for (const auto& [name, of] : CasesWithStates().items()) {
    SCOPED_TRACE(name);
    const Model model = Model::FromJson(of["model"].dump(), name).value();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    std::vector<float> parameters = Joined(of["values"]), gradients(parameters.size());
    const auto values = of["inputs"].get<std::vector<float>>(),
               targets = of["targets"].get<std::vector<float>>();
    const int64_t examples = static_cast<int64_t>(values.size()) / model.input_shape().num_elements();
    const ModelInputs inputs(model, examples, values);
    for (const json& expected : of["losses"]) {
      const auto result = replica->ForwardBackward(
          parameters, {.examples = examples, .inputs = inputs.views(), .targets = targets},
          absl::MakeSpan(gradients), [](int) {});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_NEAR(result->sums.loss / static_cast<double>(examples), expected.get<double>(),
                  kRecurrentTolerance);
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.1f * gradients[i];
    }
  }
}

// On a device that computes in 16 bits, states that are inputs of the model have another type than the gates.
TEST(RecurrentLayers, StatesAreConvertedToTheTypeOfTheGates) {
  for (const auto& [name, of] : CasesWithStates().items()) {
    SCOPED_TRACE(name);
    const Model model = Model::FromJson(of["model"].dump(), name).value();
    const auto device = kernels::cuda::CreateDevice({.precision = kernels::Precision::kBFloat16}).value();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    const std::vector<float> parameters = Joined(of["values"]);
    const auto values = of["inputs"].get<std::vector<float>>(),
               targets = of["targets"].get<std::vector<float>>();
    const int64_t examples = static_cast<int64_t>(values.size()) / model.input_shape().num_elements();
    const ModelInputs inputs(model, examples, values);
    std::vector<float> gradients(parameters.size());
    const auto result = replica->ForwardBackward(
        parameters, {.examples = examples, .inputs = inputs.views(), .targets = targets},
        absl::MakeSpan(gradients), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->outputs, Pointwise(FloatNear(3e-2f), of["outputs"].get<std::vector<float>>()));
    EXPECT_NEAR(result->sums.loss / static_cast<double>(examples), of["losses"][0].get<double>(), 3e-2);
  }
}

TEST(RecurrentLayers, ASummaryShowsAllOutputsOfALayerThatReturnsStates) {
  const Model model = Model::FromJson(CasesWithStates()["encoder_decoder"]["model"].dump(), "m").value();
  EXPECT_THAT(SummaryTable(model),
              HasSubstr(  // as Keras 3.15 prints it
                  "│ encoder (LSTM)      │ [(None, 3),       │         72 │ source[0][0]      │\n"
                  "│                     │ (None, 3), (None, │            │                   │\n"
                  "│                     │ 3)]               │            │                   │\n"
                  "├─────────────────────┼───────────────────┼────────────┼───────────────────┤\n"
                  "│ decoder (LSTM)      │ [(None, 5, 3),    │         72 │ target[0][0],     │\n"
                  "│                     │ (None, 3), (None, │            │ encoder[0][1],    │\n"
                  "│                     │ 3)]               │            │ encoder[0][2]     │\n"));
}

TEST(RecurrentLayers, VariablesHaveTheNamesOfKeras) {
  for (const auto& [name, of] : Cases().items()) {
    const auto model = Model::FromJson(of["model"].dump(), name);
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::string> names;
    for (const json& path : of["variables"]) {
      const std::string text = path.get<std::string>();
      const bool in_sequential = model->functional() == false;
      names.push_back(in_sequential ? text.substr(text.find('/') + 1) : text);
    }
    EXPECT_EQ(VariableNames(*model), names) << name;
  }
}

TEST(RecurrentLayers, ABiasOfTheForgetGateBeginsWithOnes) {
  const auto model = Model::FromJson(
      SequentialOf(R"({"class_name": "LSTM", "config": {"units": 2, "input_shape": [3, 1]}})"), "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> values = model->InitialParameters(1);
  EXPECT_THAT(std::vector<float>(values.end() - 8, values.end()),
              testing::ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
}

TEST(RecurrentLayers, DropoutDropsTheSameElementsInAllStepsOfASequence) {
  // With an identity as kernel and no states, the outputs are the inputs that were kept.
  const auto model = Model::FromJson(SequentialOf(R"({"class_name": "SimpleRNN", "config": {"units": 8,
      "activation": "linear", "use_bias": false, "dropout": 0.5, "return_sequences": true,
      "kernel_initializer": "identity", "recurrent_initializer": "zeros", "input_shape": [4, 8]}})"),
                                     "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const std::vector<float> parameters = model->InitialParameters(1), inputs(2 * 4 * 8, 1.0f),
                           targets(inputs.size());
  std::vector<float> gradients(parameters.size());
  const auto result = replica->ForwardBackward(
      parameters, {.examples = 2, .inputs = FloatRows(2, inputs), .targets = targets},
      absl::MakeSpan(gradients), [](int) {});
  ASSERT_TRUE(result.ok()) << result.status();
  int kept = 0;
  for (size_t example = 0; example < 2; ++example) {
    for (size_t channel = 0; channel < 8; ++channel) {
      const float first = result->outputs[example * 32 + channel];
      EXPECT_TRUE(first == 0 || first == 2) << first;
      kept += first == 2;
      for (size_t step = 1; step < 4; ++step)
        EXPECT_EQ(result->outputs[example * 32 + step * 8 + channel], first);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 16);
}

// The outputs [2, 3, 2, 2] of a ConvLSTM2D in training, on ones: h = x + h of the step before.
std::vector<float> OutputsOfSums(absl::string_view option) {
  const auto model = Model::FromJson(
      SequentialOf(absl::StrCat(R"({"class_name": "ConvLSTM2D", "config": {"filters": 1, "kernel_size": 1,
          "activation": "linear", "recurrent_activation": "linear", "return_sequences": true, )",
                                option, R"(, "input_shape": [3, 2, 2, 1]}})")),
      "m");
  EXPECT_TRUE(model.ok()) << model.status();
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  // i f c o of the kernel, of the recurrent kernel and of the bias.
  const std::vector<float> parameters = {0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1}, inputs(24, 1.0f), targets(24);
  std::vector<float> gradients(parameters.size());
  const auto result = replica->ForwardBackward(
      parameters, {.examples = 2, .inputs = FloatRows(2, inputs), .targets = targets, .seed = 3},
      absl::MakeSpan(gradients), [](int) {});
  EXPECT_TRUE(result.ok()) << result.status();
  return {result->outputs.begin(), result->outputs.end()};
}

TEST(RecurrentLayers, DropoutOfImagesDropsTheSameElementsInAllSteps) {
  using Sequence = std::vector<float>;
  // A dropped element is 0, and any other is doubled.
  for (const auto& [option, dropped, kept] :
       {std::tuple{R"("dropout": 0.5)", Sequence{0, 0, 0}, Sequence{2, 4, 6}},
        {R"("recurrent_dropout": 0.5)", Sequence{1, 1, 1}, Sequence{1, 3, 7}}}) {
    const std::vector<float> outputs = OutputsOfSums(option);
    std::set<Sequence> sequences;
    for (size_t example = 0; example < 2; ++example) {
      for (size_t place = 0; place < 4; ++place) {
        const size_t at = example * 12 + place;
        sequences.insert({outputs[at], outputs[at + 4], outputs[at + 8]});
      }
    }
    EXPECT_EQ(sequences, (std::set<Sequence>{dropped, kept})) << option;
  }
}

struct Refusal {
  const char* layers;
  const char* told;
};

TEST(RecurrentLayers, UnsupportedOptionsAreRefusedWithAdvice) {
  for (
      const Refusal& refusal :
      {Refusal{
           R"({"class_name": "LSTM", "config": {"name": "l", "units": 2, "return_state": true,
                "input_shape": [3, 1]}})",
           "layer 'l' (LSTM), line 1: has several outputs (return_state, or merge_mode null), but a "
           "Sequential"},
       {R"({"class_name": "GRU", "config": {"units": 2, "stateful": true, "input_shape": [3, 1]}})",
        "stateful: true is not supported: every batch begins with its own states"},
       {R"({"class_name": "GRU", "config": {"units": 2, "activation": "gelu", "input_shape": [3, 1]}})",
        "activation: \"gelu\" is not supported in a recurrent layer, only elu"},
       {R"({"class_name": "LSTM", "config": {"units": 2, "input_shape": [3]}})",
        "input [3] is not a sequence [steps, channels]"},
       {R"({"class_name": "RNN", "config": {"cell": {"class_name": "LSTMCell", "config": {"units": 2}}}})",
        "unknown layer"},
       {R"({"class_name": "Bidirectional", "config": {"layer": {"class_name": "LSTM", "config": {"units": 2}},
             "merge_mode": null, "input_shape": [3, 1]}})",
        "has several outputs"},
       {R"({"class_name": "Bidirectional", "config": {"layer": {"class_name": "Dense", "config": {"units": 2}},
             "merge_mode": "sum", "input_shape": [3, 1]}})",
        "layer: \"Dense\" is not a supported layer within another"},
       {R"({"class_name": "TimeDistributed", "config": {"layer": {"class_name": "Dense", "config": {"unit": 2}},
             "input_shape": [3, 1]}})",
        "layer: 'dense' (Dense): units: required"},
       {R"({"class_name": "TimeDistributed", "config": {"layer": {"class_name": "BatchNormalization", "config": {}},
             "input_shape": [3, 1]}})",
        "layer: BatchNormalization is not supported in TimeDistributed"},
       {R"({"class_name": "TimeDistributed", "config": {"layer": {"class_name": "LSTM", "config": {"units": 2,
             "return_state": true}}, "input_shape": [4, 3, 1]}})",
        "layer: LSTM is not supported in TimeDistributed"},
       {R"({"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 3, "input_shape": [3, 4, 4]}})",
        "input [3,4,4] is not a sequence of images [steps, height, width, channels]"},
       {R"({"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 3, "input_shape": [3, 2, 4, 1]}})",
        "a window of 3x3 does not fit an image of 2x4"},
       {R"({"class_name": "ConvLSTM2D", "config": {"filters": 2147483648, "kernel_size": 1,
             "return_sequences": true, "input_shape": [3, 1024, 1024, 1]}})",
        "has more than 2^40 elements"},
       {R"({"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 3, "data_format": "channels_first",
             "input_shape": [3, 4, 4, 1]}})",
        "data_format: \"channels_first\""},
       {R"({"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 3, "stateful": true,
             "input_shape": [3, 4, 4, 1]}})",
        "stateful: true is not supported"},
       {R"({"class_name": "Masking", "config": {"input_shape": [3, 4, 4, 1]}},
           {"class_name": "ConvLSTM2D", "config": {"filters": 2, "kernel_size": 3}})",
        "its input has a mask of time steps (of mask_zero or Masking), which this layer would read in Keras"},
       {R"({"class_name": "Masking", "config": {"input_shape": [3, 2]}}, {"class_name": "BatchNormalization"})",
        "its input has a mask of time steps"}}) {
    const auto status = Model::FromJson(SequentialOf(refusal.layers), "m").status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.told));
  }
}

// A layer on "x" [3, 2], with the states of "h" [2].
std::string WithStates(absl::string_view layer, absl::string_view inbound, absl::string_view output) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3, 2]}, "inbound_nodes": []},
      {"class_name": "InputLayer", "config": {"name": "h", "batch_shape": [null, 2]}, "inbound_nodes": []},
      {)",
                      layer, R"(, "inbound_nodes": [[)", inbound, R"(]]}],
      "input_layers": [["x", 0, 0], ["h", 0, 0]], "output_layers": [)",
                      output, "]}}");
}

// As Keras' default.
TEST(RecurrentLayers, BothDirectionsAreConcatenatedWithoutAMergeMode) {
  const auto shape = [](const char* merge_mode) {
    const auto model = Model::FromJson(
        SequentialOf(absl::StrCat(
            R"({"class_name": "Bidirectional", "config": {"layer": {"class_name": "LSTM", "config": {"units": 2}},)",
            merge_mode, R"("input_shape": [3, 1]}})")),
        "m");
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->nodes().back().output_shape : Shape();
  };
  EXPECT_EQ(shape(""), Shape({4}));
  EXPECT_EQ(shape(R"("merge_mode": "concat", )"), Shape({4}));
  EXPECT_EQ(shape(R"("merge_mode": "sum", )"), Shape({2}));
}

TEST(RecurrentLayers, SeparateDirectionsRefuseMasks) {
  const auto status = Model::FromJson(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3, 2]}},
      {"class_name": "Masking", "config": {"name": "k"}, "inbound_nodes": [["x"]]},
      {"class_name": "Bidirectional", "config": {"name": "b", "merge_mode": null, "layer": {"class_name": "GRU",
       "config": {"units": 2, "return_sequences": true}}}, "inbound_nodes": [["k"]]}],
      "input_layers": ["x"], "output_layers": [["b", 0, 1]]}})",
                                      "m")
                          .status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("layer 'b' (Bidirectional), line 4: its input has a mask of time steps"));
}

TEST(RecurrentLayers, WrongStatesAreRefused) {
  const char* const gru = R"("class_name": "GRU", "config": {"name": "g", "units": 3, "return_state": true})";
  const char* const lstm = R"("class_name": "LSTM", "config": {"name": "g", "units": 2})";
  const char* const both =
      R"("class_name": "Bidirectional", "config": {"name": "g", "merge_mode": "concat", "layer": {"class_name": "LSTM",
      "config": {"units": 2}}, "backward_layer": {"class_name": "GRU", "config": {"units": 2, "go_backwards": true}}})";
  const char *const one = R"(["x", 0, 0], ["h", 0, 0])", *const two =
                                                             R"(["x", 0, 0], ["h", 0, 0], ["h", 0, 0])";
  for (const auto& [text, told] :
       {std::pair{WithStates(gru, one, R"(["g", 0, 0])"),
                  "layer 'g' (GRU), line 4: initial_state: a state is [2], expected [3]"},
        {WithStates(lstm, one, R"(["g", 0, 0])"), "2 inputs, expected one, or with an initial_state 3"},
        {WithStates(lstm, two, R"(["g", 0, 1])"), "layer 'g' has 1 output, not 2"},
        {WithStates(gru, one, R"(["g", 0, 2])"), "layer 'g' has 2 outputs, not 3"},
        {WithStates(both, two, R"(["g", 0, 0])"), "3 inputs, expected one"},
        {WithStates(lstm, R"(["x", 0, 0, {"initial_state": 1}])", R"(["g", 0, 0])"),
         "the number 1 in place of a tensor is not supported"}}) {
    EXPECT_THAT(std::string(Model::FromJson(text, "m").status().message()), HasSubstr(told));
  }
}

TEST(RecurrentLayers, APenaltyOnALayersOutputsCountsItsStates) {
  const auto evaluate = [](absl::string_view regularizer) {
    const std::string layer = absl::StrCat(
        R"("class_name": "GRU", "config": {"name": "g", "units": 2, "return_state": true)", regularizer, "}");
    const Model model =
        Model::FromJson(WithStates(layer, R"(["x", 0, 0], ["h", 0, 0])", R"(["g", 0, 1])"), "m").value();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto replica =
        Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    std::vector<float> values, targets(2 * 2);
    for (int i = 0; i < 2 * (6 + 2); ++i) values.push_back(static_cast<float>(std::sin(i)));
    const ModelInputs inputs(model, 2, values);
    const auto result = replica->Evaluate(model.InitialParameters(1),
                                          {.examples = 2, .inputs = inputs.views(), .targets = targets});
    return std::pair(result->sums.loss / 2,
                     std::vector<float>(result->outputs.begin(), result->outputs.end()));
  };
  const auto [plain, states] = evaluate("");
  const auto [penalized, same_states] =
      evaluate(R"(, "activity_regularizer": {"class_name": "L2", "config": {"l2": 0.5}})");
  EXPECT_EQ(states, same_states);
  double squares = 0;
  for (const float state : states) squares += double{state} * state;
  ASSERT_GT(squares, 0.01);
  // The output and the state are the same numbers. A penalty is divided by the examples.
  EXPECT_NEAR(penalized - plain, 0.5 * 2 * squares / 2, 1e-6);
}

}  // namespace
}  // namespace cairn::nn

// Recurrent layers, masks of time steps and the layers that wrap others: outputs and gradients against Keras 3.15 on
// JAX (keras_recurrent/make.py), and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
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

const json& Cases() {
  static const json* const cases =
      new json(json::parse(ReadFile(InSource("tests/support/data/keras_recurrent/models.json")).value()));
  return *cases;
}

TEST(RecurrentLayers, OutputsAndGradientsAreThoseOfKeras) {
  for (const bool cuda : {false, true}) {
    for (const auto& [name, of] : Cases().items()) {
      SCOPED_TRACE(absl::StrCat(name, cuda ? " on CUDA" : ""));
      const auto model = Model::FromJson(of["model"].dump(), name);
      ASSERT_TRUE(model.ok()) << model.status();
      std::vector<float> parameters, expected;
      for (const json& list : of["values"]) {
        for (const json& value : list) parameters.push_back(value.get<float>());
      }
      for (const json& list : of["gradients"]) {
        for (const json& value : list) expected.push_back(value.get<float>());
      }
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
           "layer 'l' (LSTM), line 1: return_state: true is not supported: a layer has one output"},
       {R"({"class_name": "GRU", "config": {"units": 2, "stateful": true, "input_shape": [3, 1]}})",
        "stateful: true is not supported: states start at 0 in every example"},
       {R"({"class_name": "GRU", "config": {"units": 2, "activation": "gelu", "input_shape": [3, 1]}})",
        "activation: \"gelu\" is not supported in a recurrent layer, only elu"},
       {R"({"class_name": "LSTM", "config": {"units": 2, "input_shape": [3]}})",
        "input [3] is not a sequence [steps, channels]"},
       {R"({"class_name": "RNN", "config": {"cell": {"class_name": "LSTMCell", "config": {"units": 2}}}})",
        "unknown layer"},
       {R"({"class_name": "Bidirectional", "config": {"layer": {"class_name": "LSTM", "config": {"units": 2}},
             "merge_mode": null, "input_shape": [3, 1]}})",
        "merge_mode: null is not supported, because a layer has one output"},
       {R"({"class_name": "Bidirectional", "config": {"layer": {"class_name": "Dense", "config": {"units": 2}},
             "merge_mode": "sum", "input_shape": [3, 1]}})",
        "layer: \"Dense\" is not a supported layer within another"},
       {R"({"class_name": "TimeDistributed", "config": {"layer": {"class_name": "Dense", "config": {"unit": 2}},
             "input_shape": [3, 1]}})",
        "layer: 'dense' (Dense): units: required"},
       {R"({"class_name": "TimeDistributed", "config": {"layer": {"class_name": "BatchNormalization", "config": {}},
             "input_shape": [3, 1]}})",
        "layer: BatchNormalization is not supported in TimeDistributed"},
       {R"({"class_name": "Masking", "config": {"input_shape": [3, 2]}}, {"class_name": "BatchNormalization"})",
        "its input has a mask of time steps"}}) {
    const auto status = Model::FromJson(SequentialOf(refusal.layers), "m").status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.told));
  }
}

}  // namespace
}  // namespace cairn::nn

// Layers, and functions of keras.ops, against numbers that Keras computed: keras_layers.py and keras_functions.py in
// tests/support/data record them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/core/files.h"
#include "common/core/json.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr int64_t kExamples = 3;

std::unique_ptr<kernels::Device> Cpu() {
  return kernels::CreateCpuDevice(0, 2).value();
}
std::unique_ptr<kernels::Device> Cuda() {
  return kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value();
}

void ExpectNumbers(absl::Span<const float> got, const json& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double number = expected[i].get<double>();
    ASSERT_NEAR(got[i], number, 2e-5 * (1 + std::fabs(number))) << what << " " << i;
  }
}

class KerasLayers : public testing::TestWithParam<std::unique_ptr<kernels::Device> (*)()> {
 protected:
  static void CheckAll(const char* file_name) {
    const auto text = ReadFile(InSource(file_name));
    ASSERT_TRUE(text.ok()) << text.status();
    const auto file = ParseJson(WithFiniteNumbers(*text), file_name);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto device = GetParam()();
    for (const json& recorded : *file) {
      SCOPED_TRACE(recorded["name"].get<std::string>());
      Check(recorded, *device);
    }
  }
  static void Check(const json& recorded, kernels::Device& device) {
    auto parsed = Model::FromJson(recorded["model"].dump(), "model.json");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const Model& model = *parsed;
    std::vector<float> parameters(static_cast<size_t>(model.num_parameters()));
    std::vector<float> gradients(parameters.size());
    ASSERT_EQ(model.variables().size(), recorded["variables"].size());
    for (const ModelVariable& variable : model.variables()) {
      ASSERT_TRUE(recorded["variables"].contains(variable.name)) << variable.name;
      const auto values = recorded["variables"][variable.name].get<std::vector<float>>();
      ASSERT_EQ(static_cast<int64_t>(values.size()), variable.shape.num_elements()) << variable.name;
      std::copy(values.begin(), values.end(), parameters.begin() + variable.offset);
    }
    auto replica = Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, device);
    ASSERT_TRUE(replica.ok()) << replica.status();
    const auto inputs = recorded["inputs"].get<std::vector<float>>();
    const std::vector<float> targets(recorded["outputs"].size());
    const BatchView batch = {
        .examples = kExamples, .inputs = FloatRows(kExamples, inputs), .targets = targets};

    const auto result = (*replica)->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectNumbers(result->outputs, recorded["outputs"], "outputs");
    const double loss = recorded["loss"].get<double>();
    EXPECT_NEAR(result->sums.loss / kExamples, loss, 2e-5 * (1 + loss));
    for (const ModelVariable& variable : model.variables()) {
      if (!variable.trainable()) continue;
      ExpectNumbers(absl::MakeSpan(gradients).subspan(static_cast<size_t>(variable.offset),
                                                      static_cast<size_t>(variable.shape.num_elements())),
                    recorded["gradients"][variable.name], variable.name);
    }
    const auto inferred = (*replica)->Evaluate(parameters, batch);
    ASSERT_TRUE(inferred.ok()) << inferred.status();
    ExpectNumbers(inferred->outputs, recorded["inferred"], "outputs in inference");
  }
};

TEST_P(KerasLayers, OutputsLossesAndGradientsAreThoseOfKeras) {
  CheckAll("tests/support/data/keras_layers.json");
}

TEST_P(KerasLayers, FunctionsAndTheirGradientsAreThoseOfKeras) {
  CheckAll("tests/support/data/keras_functions.json");
}

INSTANTIATE_TEST_SUITE_P(, KerasLayers, testing::Values(Cpu, Cuda),
                         [](const auto& tested) { return tested.index == 0 ? "Cpu" : "Cuda"; });

}  // namespace
}  // namespace cairn::nn

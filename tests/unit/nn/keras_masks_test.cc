// Models that compute masks from their ids, against numbers that Keras computed: tests/support/data/keras_masks.py
// records them.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

using DeviceMaker = std::unique_ptr<kernels::Device> (*)();
std::unique_ptr<kernels::Device> OnCpu() {
  return kernels::CreateCpuDevice(0, 2).value();
}
std::unique_ptr<kernels::Device> OnCuda() {
  return kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value();
}

void ExpectClose(absl::Span<const float> got, absl::Span<const float> expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 2e-5 * (1 + std::fabs(expected[i]))) << what << " " << i;
}

// One step of a model on ids [input][example][step].
struct Step {
  std::vector<float> outputs, gradients, inferred;
  double loss = 0;
};
Step RunStep(const Model& model, absl::Span<const float> parameters,
             const std::vector<std::vector<std::vector<int64_t>>>& ids, kernels::Device& device) {
  Step step;
  const auto examples = static_cast<int64_t>(ids[0].size());
  std::vector<std::vector<int32_t>> narrow(ids.size());
  std::vector<std::vector<int64_t>> wide(ids.size());
  BatchView batch = {.examples = examples, .inputs = {}, .targets = {}};
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const std::vector<int64_t>& row : ids[i]) {
      wide[i].insert(wide[i].end(), row.begin(), row.end());
      for (const int64_t id : row) narrow[i].push_back(static_cast<int32_t>(id));
    }
    const DType type = model.inputs()[i].dtype;
    const void* const memory =
        type == DType::kInt32 ? static_cast<const void*>(narrow[i].data()) : wide[i].data();
    EXPECT_TRUE(type == DType::kInt32 || type == DType::kInt64) << model.inputs()[i].name;
    batch.inputs.push_back({type, {examples, static_cast<int64_t>(ids[i][0].size())}, memory});
  }
  const std::vector<float> targets(static_cast<size_t>(examples * model.output_shape().num_elements()));
  batch.targets = targets;
  auto replica = Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, device);
  EXPECT_TRUE(replica.ok()) << replica.status();
  if (!replica.ok()) return step;
  step.gradients.resize(parameters.size());
  const auto result =
      (*replica)->ForwardBackward(parameters, batch, absl::MakeSpan(step.gradients), [](int) {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return step;
  step.outputs.assign(result->outputs.begin(), result->outputs.end());
  step.loss = result->sums.loss / static_cast<double>(examples);
  const auto inferred = (*replica)->Evaluate(parameters, batch);
  EXPECT_TRUE(inferred.ok()) << inferred.status();
  if (inferred.ok()) step.inferred.assign(inferred->outputs.begin(), inferred->outputs.end());
  return step;
}

json Recordings() {
  std::ifstream file(InSource("tests/support/data/keras_masks.json"));
  return json::parse(file);
}

std::vector<float> ParametersOf(const json& recorded, const Model& model) {
  std::vector<float> parameters(static_cast<size_t>(model.num_parameters()));
  for (const ModelVariable& variable : model.variables()) {
    const auto values = recorded["variables"].value(variable.name, std::vector<float>());
    EXPECT_EQ(static_cast<int64_t>(values.size()), variable.shape.num_elements()) << variable.name;
    std::copy(values.begin(), values.end(), parameters.begin() + variable.offset);
  }
  return parameters;
}

class KerasMasks : public testing::TestWithParam<DeviceMaker> {};

TEST_P(KerasMasks, OutputsLossesAndGradientsAreThoseOfKeras) {
  const auto device = GetParam()();
  for (const json& recorded : Recordings()) {
    SCOPED_TRACE(recorded["name"].get<std::string>());
    const auto model = Model::FromJson(recorded["model"].dump(), "model.json");
    ASSERT_TRUE(model.ok()) << model.status();
    const Step step =
        RunStep(*model, ParametersOf(recorded, *model),
                recorded["inputs"].get<std::vector<std::vector<std::vector<int64_t>>>>(), *device);
    const auto outputs = recorded["outputs"].get<std::vector<float>>();
    ExpectClose(step.outputs, outputs, "outputs");
    ExpectClose(step.inferred, outputs, "outputs in inference");
    const double loss = recorded["loss"].get<double>();
    EXPECT_NEAR(step.loss, loss, 2e-5 * (1 + loss));
    for (const ModelVariable& variable : model->variables()) {
      ExpectClose(absl::MakeConstSpan(step.gradients)
                      .subspan(static_cast<size_t>(variable.offset),
                               static_cast<size_t>(variable.shape.num_elements())),
                  recorded["gradients"][variable.name].get<std::vector<float>>(), variable.name);
    }
  }
}

TEST_P(KerasMasks, PackedTextsAreComputedAsIfEachWereAlone) {
  const auto device = GetParam()();
  const json recorded = Recordings()[0];
  ASSERT_EQ(recorded["name"], "packed_texts");
  const std::string of_six = recorded["model"].dump();
  const auto with_steps = [&](const std::string& steps) {
    return Model::FromJson(
        absl::StrReplaceAll(of_six, {{R"("batch_shape":[null,6])", R"("batch_shape":[null,)" + steps + "]"}}),
        "m");
  };
  const auto packed = with_steps("6"), first = with_steps("2"), second = with_steps("4");
  ASSERT_TRUE(packed.ok() && first.ok() && second.ok())
      << packed.status() << first.status() << second.status();
  const std::vector<float> parameters = ParametersOf(recorded, *packed);
  // 3 is the end of a text.
  const Step both = RunStep(*packed, parameters, {{{5, 3, 1, 2, 2, 3}}}, *device),
             one = RunStep(*first, parameters, {{{5, 3}}}, *device),
             other = RunStep(*second, parameters, {{{1, 2, 2, 3}}}, *device);
  std::vector<float> outputs = one.outputs, gradients;
  outputs.insert(outputs.end(), other.outputs.begin(), other.outputs.end());
  ExpectClose(both.outputs, outputs, "outputs");
  // The loss is a mean over the steps.
  for (size_t i = 0; i < parameters.size(); ++i)
    gradients.push_back((2 * one.gradients[i] + 4 * other.gradients[i]) / 6);
  ExpectClose(both.gradients, gradients, "gradients");
  // Without the mask a text depends on the one before it.
  const Step changed = RunStep(*packed, parameters, {{{6, 6, 1, 2, 2, 3}}}, *device);
  EXPECT_THAT(changed.outputs[25], testing::Not(testing::FloatNear(both.outputs[25], 1e-3f)));
}

INSTANTIATE_TEST_SUITE_P(, KerasMasks, testing::Values(OnCpu, OnCuda),
                         [](const auto& tested) { return tested.index == 0 ? "Cpu" : "Cuda"; });

}  // namespace
}  // namespace cairn::nn

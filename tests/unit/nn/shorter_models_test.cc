// Networks for shorter sequences (Model::shorter()): a batch without padding has the losses, metrics and gradients of
// the padded one.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/replica/mirrored_replica.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::HasSubstr;

// A tag for each step, and a class for the whole sequence.
constexpr char kTagger[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, null], "dtype": "int32"},
     "inbound_nodes": []},
    {"class_name": "Embedding", "name": "e", "config": {"name": "e", "input_dim": 9, "output_dim": 2,
     "mask_zero": true}, "inbound_nodes": [[["x", 0, 0, {}]]]},
    {"class_name": "SimpleRNN", "name": "r", "config": {"name": "r", "units": 3, "return_sequences": true},
     "inbound_nodes": [[["e", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "tags", "config": {"name": "tags", "units": 3, "activation": "softmax"},
     "inbound_nodes": [[["r", 0, 0, {}]]]},
    {"class_name": "SimpleRNN", "name": "last", "config": {"name": "last", "units": 2},
     "inbound_nodes": [[["r", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "kind", "config": {"name": "kind", "units": 1, "activation": "sigmoid"},
     "inbound_nodes": [[["last", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["tags", 0, 0], ["kind", 0, 0]]},
  "compile_config": {"loss": {"tags": "sparse_categorical_crossentropy", "kind": "binary_crossentropy"},
                     "metrics": {"tags": ["accuracy"], "kind": ["accuracy"]}}})";

Model ReadOfLength(int64_t length) {
  return Model::FromJson(kTagger, "m", {.given = {{"", {6}}}, .max_length = length}).value();
}

struct Outcome {
  std::vector<float> gradients;
  MetricValues metrics;
};

// A step of a batch of two sequences with 3 and 2 ids, padded to `length`, by a model of 6 steps.
Outcome OutcomeOf(Replica& replica, const Model& model, int64_t length) {
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  MetricSet metrics(MetricsOf(model.compile_config().metrics, objective, model).value());
  std::vector<int32_t> ids;
  std::vector<float> targets;
  for (const std::vector<int32_t>& sequence : {std::vector<int32_t>{1, 5, 3}, {8, 2, 0}}) {
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      ids.push_back(i < sequence.size() ? sequence[i] : 0);
      targets.push_back(static_cast<float>((sequence[0] + static_cast<int32_t>(i)) % 3));
    }
    targets.push_back(sequence[0] == 1 ? 1.0f : 0.0f);
  }
  BatchView batch = {.examples = 2, .targets = targets};
  batch.inputs.push_back({DType::kInt32, {2, length}, ids.data()});
  std::vector<float> parameters;
  for (int64_t i = 0; i < model.num_parameters(); ++i)
    parameters.push_back(static_cast<float>(0.5 * std::sin(static_cast<double>(1 + i))));
  Outcome outcome;
  outcome.gradients.resize(parameters.size());
  const auto result =
      replica.ForwardBackward(parameters, batch, absl::MakeSpan(outcome.gradients), [](int) {});
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return outcome;
  metrics.Update(batch, *result);
  const auto evaluated = replica.Evaluate(parameters, batch);
  EXPECT_TRUE(evaluated.ok()) << evaluated.status();
  if (evaluated.ok()) metrics.Update(batch, *evaluated);
  outcome.metrics = metrics.Values();
  return outcome;
}

void ExpectSame(const Outcome& shorter, const Outcome& whole) {
  ASSERT_EQ(shorter.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i)
    EXPECT_NEAR(shorter.gradients[i], whole.gradients[i], 1e-6) << i;
  ASSERT_EQ(shorter.metrics.size(), whole.metrics.size());
  for (size_t i = 0; i < whole.metrics.size(); ++i)
    EXPECT_NEAR(shorter.metrics[i].second, whole.metrics[i].second, 1e-6) << whole.metrics[i].first;
}

TEST(ShorterModels, ABatchWithoutPaddingGivesTheSameGradientsAndMetrics) {
  Model model = ReadOfLength(0);
  for (const int64_t length : {2, 3, 4}) ASSERT_TRUE(model.AddShorter(ReadOfLength(length)).ok());
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, ObjectiveOf(model.compile_config(), model).value(), *device).value();
  const Outcome whole = OutcomeOf(*replica, model, 6);
  EXPECT_GT(whole.metrics.size(), 4u);
  for (const int64_t length : {3, 4, 3}) ExpectSame(OutcomeOf(*replica, model, length), whole);
}

TEST(ShorterModels, EachOfSeveralDevicesHasThem) {
  Model model = ReadOfLength(0);
  ASSERT_TRUE(model.AddShorter(ReadOfLength(3)).ok());
  std::vector<std::unique_ptr<DeviceThread>> threads;
  std::vector<DeviceThread*> pointers;
  for (int i = 0; i < 2; ++i) {
    threads.push_back(DeviceThread::Start("cpu", [] { return kernels::CreateCpuDevice(0, 1); }).value());
    pointers.push_back(threads.back().get());
  }
  const auto replica =
      MakeMirroredReplica(model, ObjectiveOf(model.compile_config(), model).value(), pointers).value();
  const Outcome whole = OutcomeOf(*replica, model, 6);
  ExpectSame(OutcomeOf(*replica, model, 3), whole);
}

TEST(ShorterModels, ABatchOfAnotherLengthIsRefused) {
  Model model = ReadOfLength(0);
  ASSERT_TRUE(model.AddShorter(ReadOfLength(3)).ok());
  const Objective objective = ObjectiveOf(model.compile_config(), model).value();
  const std::vector<float> parameters(static_cast<size_t>(model.num_parameters())), targets(5);
  const std::vector<int32_t> ids(4);
  BatchView batch = {.examples = 1, .targets = targets};
  batch.inputs.push_back({DType::kInt32, {1, 4}, ids.data()});
  EXPECT_THAT(std::string(CheckBatch(model, objective, parameters, batch).message()),
              HasSubstr("as input 'x'"));
}

TEST(ShorterModels, OthersThanShorterOnesAreRefused) {
  Model model = ReadOfLength(0);
  EXPECT_THAT(std::string(model.AddShorter(ReadOfLength(6)).message()),
              HasSubstr("no input would be shorter"));
  const auto read = [](int64_t length) {
    return Model::FromJson(
               SequentialOf(R"({"class_name": "Embedding", "config": {"input_dim": 9, "output_dim": 2,
        "batch_input_shape": [null, null]}}, {"class_name": "Flatten"}, {"class_name": "Dense", "config":
        {"name": "d", "units": 1}})"),
               "m", {.given = {{"", {6}}}, .max_length = length})
        .value();
  };
  Model flat = read(0);
  EXPECT_THAT(std::string(flat.AddShorter(read(3)).message()),
              HasSubstr("variable 'd/kernel' would have the shape [6,1], it has [12,1]"));
}

}  // namespace
}  // namespace cairn::nn

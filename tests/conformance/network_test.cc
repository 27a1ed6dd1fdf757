// A whole small network: its gradients against finite differences of a double-precision forward pass that
// shares no code with it, and the same numbers on every run.
#include <cmath>
#include <cstring>
#include <limits>

#include "common/core/random.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/cpu/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/conformance/backends.h"
#include "tests/support/model_inputs.h"

namespace cairn::conformance {
namespace {

using reference::Tensor;

constexpr int64_t kClasses = 4;

// Layers whose channels are not multiples of a block, both paddings, strides, a softmax at the end.
constexpr char kNetwork[] = R"({
  "class_name": "Sequential",
  "config": {"layers": [
    {"class_name": "Conv2D", "config": {"batch_shape": [null, 9, 8, 2], "filters": 5, "kernel_size": 3,
                                        "padding": "same", "activation": "relu"}},
    {"class_name": "MaxPooling2D", "config": {"pool_size": [2, 2]}},
    {"class_name": "Conv2D", "config": {"filters": 18, "kernel_size": [2, 3], "strides": 1, "activation": "relu",
                                        "use_bias": false}},
    {"class_name": "Flatten"},
    {"class_name": "Dense", "config": {"units": 7, "activation": "relu"}},
    {"class_name": "Dense", "config": {"units": 4, "activation": "%s"}}
  ]}
})";

nn::Model MakeModel(bool softmax) {
  std::string json = kNetwork;
  json.replace(json.find("%s"), 2, softmax ? "softmax" : "linear");
  return nn::Model::FromJson(json, "network").value();
}

// The mean loss in double, written out layer by layer.
double MeanLoss(const nn::Model& model, const std::vector<double>& parameters, const Tensor& inputs,
                const std::vector<float>& labels, bool softmax) {
  const auto variable = [&](size_t index) {
    const nn::ModelVariable& description = model.variables()[index];
    Tensor tensor(description.shape);
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = parameters[static_cast<size_t>(description.offset) + i];
    }
    return tensor;
  };
  Tensor y = reference::Conv2D(inputs, {3, 3, 1, 1, true}, variable(0), variable(1).values);
  reference::Relu(y);
  y = reference::MaxPool2D(y, {2, 2, 2, 2, false}).y;
  y = reference::Conv2D(y, {2, 3, 1, 1, false}, variable(2), {});
  reference::Relu(y);
  y.shape = {y.shape[0], y.shape.row_elements()};
  y = reference::Dense(y, variable(3), variable(4).values);
  reference::Relu(y);
  y = reference::Dense(y, variable(5), variable(6).values);
  if (softmax) y = reference::Softmax(y);
  double sum = 0;
  for (size_t n = 0; n < labels.size(); ++n) {
    sum +=
        reference::CrossEntropy(&y.values[n * kClasses], kClasses, static_cast<int64_t>(labels[n]), !softmax);
  }
  return sum / static_cast<double>(labels.size());
}

constexpr char kRagged[] = R"({"config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "ids", "batch_input_shape": [null, null], "dtype": "int64",
                                            "ragged": true}},
    {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 3}},
    {"class_name": "GlobalAveragePooling1D", "config": {"name": "mean"}},
    {"class_name": "Dense", "config": {"name": "d", "units": 4, "use_bias": false}}]}})";

// The mean loss of kRagged; its gradients, by the chain rule, go to `gradients`.
double RaggedLoss(const std::vector<float>& parameters, const std::vector<int64_t>& lengths,
                  const std::vector<int64_t>& ids, std::vector<double>& gradients) {
  constexpr int64_t kWidth = 3, kTable = 9 * kWidth;
  const auto examples = static_cast<double>(lengths.size());
  gradients.assign(parameters.size(), 0);
  double loss = 0;
  size_t at = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto length = static_cast<size_t>(lengths[row]);
    double mean[kWidth] = {}, y[kClasses] = {};
    for (size_t i = at; i < at + length; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        mean[j] += static_cast<double>(parameters[static_cast<size_t>(ids[i] * kWidth + j)]) /
                   static_cast<double>(length);
      }
    }
    const auto kernel = [](int64_t j, int64_t k) { return static_cast<size_t>(kTable + j * kClasses + k); };
    for (int64_t k = 0; k < kClasses; ++k) {
      for (int64_t j = 0; j < kWidth; ++j) y[k] += mean[j] * static_cast<double>(parameters[kernel(j, k)]);
    }
    const auto label = static_cast<int64_t>(row) % kClasses;
    loss += reference::CrossEntropy(y, kClasses, label, true) / examples;
    double sum = 0;
    for (const double value : y) sum += std::exp(value);
    for (int64_t k = 0; k < kClasses; ++k) {
      const double dy = (std::exp(y[k]) / sum - (k == label ? 1 : 0)) / examples;
      for (int64_t j = 0; j < kWidth; ++j) {
        gradients[kernel(j, k)] += dy * mean[j];
        for (size_t i = at; i < at + length; ++i) {
          gradients[static_cast<size_t>(ids[i] * kWidth + j)] +=
              dy * static_cast<double>(parameters[kernel(j, k)]) / static_cast<double>(length);
        }
      }
    }
    at += length;
  }
  return loss;
}

class NetworkConformance : public ConformanceTest {
 protected:
  static constexpr int64_t kExamples = 5;

  void SetUp() override {
    ConformanceTest::SetUp();
    for (float& value : inputs_float_) value = 0;
    for (size_t i = 0; i < inputs_.values.size(); ++i) {
      inputs_float_.push_back(static_cast<float>(inputs_.values[i]));
      inputs_.values[i] = inputs_float_.back();
    }
  }
  nn::BatchView Batch() const {
    return {.examples = kExamples, .inputs = FloatRows(kExamples, inputs_float_), .targets = labels_};
  }

  Tensor inputs_ = RandomTensor({kExamples, 9, 8, 2}, 11);
  std::vector<float> inputs_float_;
  const std::vector<float> labels_ = {0, 3, 1, 2, 3};
};

TEST_P(NetworkConformance, GradientsAgreeWithFiniteDifferences) {
  for (bool softmax : {false, true}) {
    const nn::Model model = MakeModel(softmax);
    std::vector<float> parameters = model.InitialParameters(3);
    Random random(3, "biases");  // not 0, where relu has its edge
    for (const nn::ModelVariable& variable : model.variables()) {
      if (variable.shape.rank() > 1) continue;
      for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
        parameters[static_cast<size_t>(variable.offset + i)] = random.NextUniform(-0.3f, 0.3f);
      }
    }
    auto replica = nn::Replica::Create(model, nn::LossSpec{.from_logits = !softmax}, device()).value();
    std::vector<float> gradients(parameters.size(), std::numeric_limits<float>::quiet_NaN());
    const auto result = replica->ForwardBackward(parameters, Batch(), absl::MakeSpan(gradients), [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();

    const std::vector<double> exact(parameters.begin(), parameters.end());
    EXPECT_NEAR(result->sums.loss / kExamples, MeanLoss(model, exact, inputs_, labels_, softmax), 1e-6);
    for (const nn::ModelVariable& variable : model.variables()) {
      double error = 0, size = 0;
      for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
        constexpr double kStep = 1e-6;
        const auto at = static_cast<size_t>(variable.offset + i);
        std::vector<double> high = exact, low = exact;
        high[at] += kStep;
        low[at] -= kStep;
        const double expected = (MeanLoss(model, high, inputs_, labels_, softmax) -
                                 MeanLoss(model, low, inputs_, labels_, softmax)) /
                                (2 * kStep);
        error = std::max(error, std::fabs(gradients[at] - expected));
        size = std::max(size, std::fabs(expected));
      }
      EXPECT_GT(size, 0) << variable.name;
      EXPECT_LE(error, 1e-5 * size) << variable.name << ", softmax " << softmax;
    }
  }
}

// A device with its own memory records the second step. The third batch has more values than its memory has room for.
TEST_P(NetworkConformance, RaggedBatchesOfAnyNumberOfValuesTakeTheSameReplica) {
  const nn::Model model = nn::Model::FromJson(kRagged, "ragged").value();
  const std::vector<float> parameters = model.InitialParameters(3), labels = {0, 1, 2, 3, 0};
  auto replica = nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, device()).value();
  AlignedBuffer gradients(1024);  // pinned memory must not share a page with other data
  ASSERT_TRUE(replica->Pin(gradients.span()).ok());
  const absl::Span<float> used = gradients.span().first(parameters.size());
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{{2, 1, 3, 1, 1},
                                                                               {1, 2, 1, 4, 1},
                                                                               {100, 1, 700, 2, 9},
                                                                               {90, 5, 600, 1, 1},
                                                                               {1, 1, 1, 1, 1},
                                                                               {3, 2, 1, 1, 1}}) {
    std::vector<int64_t> splits = {0}, ids;
    for (const int64_t length : lengths) {
      splits.push_back(splits.back() + length);
      for (int64_t i = 0; i < length; ++i) ids.push_back((i * i + length) % 9);
    }
    const nn::BatchView batch = {.examples = kExamples,
                                 .inputs = {{DType::kInt64,
                                             {static_cast<int64_t>(ids.size())},
                                             ids.data(),
                                             absl::MakeConstSpan(splits)}},
                                 .targets = labels};
    const auto result = replica->ForwardBackward(parameters, batch, used, [](int) {});
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<double> expected;
    EXPECT_NEAR(result->sums.loss / kExamples, RaggedLoss(parameters, lengths, ids, expected), 1e-6);
    ExpectNear({used.begin(), used.end()}, expected, static_cast<int64_t>(ids.size()));
  }
  replica->Unpin();
}

TEST_P(NetworkConformance, RepeatingAStepGivesTheSameBits) {
  const nn::Model model = MakeModel(false);
  const std::vector<float> parameters = model.InitialParameters(3);
  std::vector<float> first(parameters.size()), second(parameters.size());
  auto replica = nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, device()).value();
  const auto once = replica->ForwardBackward(parameters, Batch(), absl::MakeSpan(first), [](int) {});
  const auto twice = replica->ForwardBackward(parameters, Batch(), absl::MakeSpan(second), [](int) {});
  ASSERT_TRUE(once.ok() && twice.ok());
  EXPECT_EQ(once->sums.loss, twice->sums.loss);
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);

  auto other_device = GetParam()->create();
  auto other = nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, *other_device).value();
  ASSERT_TRUE(other->ForwardBackward(parameters, Batch(), absl::MakeSpan(second), [](int) {}).ok());
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
}

INSTANTIATE_CONFORMANCE(NetworkConformance);

class NetworkIn16Bits : public NetworkConformance {
 protected:
  struct Step {
    double loss = 0;
    std::vector<float> gradients;
  };
  static Step Run(kernels::Device& device, const nn::Model& model, const std::vector<float>& parameters,
                  const nn::BatchView& batch) {
    auto replica = nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, device).value();
    Step step = {.gradients = std::vector<float>(parameters.size(), std::numeric_limits<float>::quiet_NaN())};
    const auto result =
        replica->ForwardBackward(parameters, batch, absl::MakeSpan(step.gradients), [](int) {});
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) step.loss = result->sums.loss;
    return step;
  }
  // Each variable's gradient, and the loss, against those of the CPU.
  void ExpectStepsAgree(const nn::Model& model, const std::vector<float>& parameters) {
    const auto cpu = kernels::CreateCpuDevice(0, 1).value();
    const Step exact = Run(*cpu, model, parameters, Batch());
    const Step rounded = Run(device(), model, parameters, Batch());
    EXPECT_NEAR(rounded.loss, exact.loss, 2e-2 * exact.loss);
    for (const nn::ModelVariable& variable : model.variables()) {
      SCOPED_TRACE(variable.name);
      const auto begin = exact.gradients.begin() + variable.offset;
      const auto got = rounded.gradients.begin() + variable.offset;
      const int64_t count = variable.shape.num_elements();
      // Each of six layers, forward and backward, adds an error like one op's, and a relu may open or close.
      ExpectClose({got, got + count}, {begin, begin + count}, 0.1);
    }
  }
};

TEST_P(NetworkIn16Bits, AStepIsThatOfFloat32ButForRounding) {
  const nn::Model model = MakeModel(false);
  ExpectStepsAgree(model, model.InitialParameters(3));
}

TEST_P(NetworkIn16Bits, GradientsThatOverflowAreComputedAgain) {
  const nn::Model model = MakeModel(false);
  std::vector<float> parameters = model.InitialParameters(3);
  // The last kernels so large that the scaled gradients behind them leave float16's 65504, while activations
  // stay small by the first ones.
  for (const nn::ModelVariable& variable : model.variables()) {
    const float factor = variable.offset == 0 ? 1e-3f : variable.shape.rank() == 2 ? 8.0f : 1.0f;
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
      parameters[static_cast<size_t>(variable.offset + i)] *= factor;
    }
  }
  ExpectStepsAgree(model, parameters);
}

INSTANTIATE_16_BIT_CONFORMANCE(NetworkIn16Bits);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkIn16Bits);

}  // namespace
}  // namespace cairn::conformance

// Devices on their own threads, and helpers that compare replicas on them to a replica on one device.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/replica.h"
#include "tests/support/far_device.h"
#include "tests/support/model_inputs.h"

namespace cairn::nn {

class Devices {
 public:
  // "nnf": two CPU devices, and one whose memory is separate from the host's.
  explicit Devices(const std::string& kinds) {
    for (const char kind : kinds) {
      const auto index = static_cast<int>(threads_.size());
      threads_.push_back(DeviceThread::Start(absl::StrCat("cpu:", index),
                                             [&]() -> absl::StatusOr<std::unique_ptr<kernels::Device>> {
                                               auto cpu = kernels::CreateCpuDevice(index, 1);
                                               if (kind == 'n' || !cpu.ok()) return cpu;
                                               return std::make_unique<kernels::FarDevice>(*std::move(cpu));
                                             })
                             .value());
      pointers_.push_back(threads_.back().get());
    }
  }
  absl::Span<DeviceThread* const> pointers() const { return pointers_; }

 private:
  std::vector<std::unique_ptr<DeviceThread>> threads_;
  std::vector<DeviceThread*> pointers_;
};

// The results of a step.
struct StepResult {
  std::vector<float> gradients, outputs;
  std::vector<int> announced;  // [variable] number of announcements
  double loss = 0;
  int64_t examples = 0;
};

inline StepResult RunStep(Replica& replica, const Model& model, absl::Span<const float> parameters,
                          const BatchView& batch) {
  StepResult step;
  step.gradients.assign(parameters.size(), std::nanf(""));
  step.announced.resize(model.variables().size());
  const auto result =
      replica.ForwardBackward(parameters, batch, absl::MakeSpan(step.gradients), [&](int variable) {
        ++step.announced[static_cast<size_t>(variable)];
        // A gradient must be final when it is announced, since it is then pushed.
        const ModelVariable& told = model.variables()[static_cast<size_t>(variable)];
        for (int64_t i = 0; i < told.shape.num_elements(); ++i) {
          EXPECT_FALSE(std::isnan(step.gradients[static_cast<size_t>(told.offset + i)])) << told.name;
        }
      });
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return step;
  step.outputs.assign(result->outputs.begin(), result->outputs.end());
  step.loss = result->sums.loss;
  step.examples = result->sums.examples;
  return step;
}

// Random examples of a model, with classes as targets.
class Examples {
 public:
  Examples(const Model& model, int64_t count) : count_(count) {
    Random random(1, "examples");
    std::vector<float> values(static_cast<size_t>(count * model.input_shape().num_elements()));
    for (float& value : values) value = random.NextUniform();
    inputs_ = ModelInputs(model, count, values);
    const auto classes = static_cast<uint64_t>(model.output_shape()[model.output_shape().rank() - 1]);
    for (int64_t i = 0; i < count; ++i) {
      labels_.push_back(static_cast<float>(random.NextBelow(classes)));
      weights_.push_back(0.5f + random.NextUniform());
    }
  }
  BatchView Batch(uint64_t seed = 3) const {
    return {.examples = count_, .inputs = inputs_.views(), .targets = labels_, .seed = seed};
  }
  BatchView Weighted() const {
    BatchView batch = Batch();
    batch.weights = weights_;
    return batch;
  }
  std::vector<float>& labels() { return labels_; }

 private:
  const int64_t count_;
  ModelInputs inputs_;
  std::vector<float> labels_, weights_;
};

inline void ExpectNear(absl::Span<const float> got, absl::Span<const float> expected, float tolerance,
                       const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " " << i;
  }
}

inline void ExpectSameStep(const StepResult& got, const StepResult& expected, float tolerance) {
  ExpectNear(got.gradients, expected.gradients, tolerance, "gradient");
  ExpectNear(got.outputs, expected.outputs, tolerance, "output");
  EXPECT_NEAR(got.loss, expected.loss, tolerance * (1 + std::abs(expected.loss)));
  EXPECT_EQ(got.examples, expected.examples);
  for (const int times : got.announced) EXPECT_EQ(times, 1);
}

// Runs gradient descent. Returns the final parameters.
inline std::vector<float> Train(Replica& replica, const Model& model, const Examples& examples, int steps) {
  std::vector<float> parameters = model.InitialParameters(1);
  for (int step = 0; step < steps; ++step) {
    const StepResult result =
        RunStep(replica, model, parameters, examples.Batch(static_cast<uint64_t>(step)));
    for (const ModelVariable& variable : model.variables()) {
      for (int64_t i = variable.offset; i < variable.offset + variable.shape.num_elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        const float momentum = variable.moving_average_momentum.value_or(0);
        parameters[at] = variable.trainable()
                             ? parameters[at] - 0.1f * result.gradients[at]
                             : momentum * parameters[at] + (1 - momentum) * result.gradients[at];
      }
    }
  }
  return parameters;
}

// A typical small model: convolutions with pooling, dropout between dense layers, a penalty.
inline constexpr char kSmallCnn[] = R"({"config": {"layers": [
    {"class_name": "Conv2D", "config": {"name": "conv", "filters": 4, "kernel_size": 3, "activation": "relu",
                                        "input_shape": [8, 8, 1]}},
    {"class_name": "MaxPooling2D", "config": {"name": "pool"}},
    {"class_name": "Conv2D", "config": {"name": "conv_1", "filters": 5, "kernel_size": 2, "activation": "relu"}},
    {"class_name": "Flatten", "config": {"name": "flatten"}},
    {"class_name": "Dense", "config": {"name": "dense", "units": 7, "activation": "relu",
        "kernel_regularizer": {"class_name": "L2", "config": {"l2": 0.01}}}},
    {"class_name": "Dropout", "config": {"name": "dropout", "rate": 0.5}},
    {"class_name": "Dense", "config": {"name": "dense_1", "units": 3}}]}})";

inline constexpr char kMlp[] = R"({"config": {"layers": [
    {"class_name": "Dense", "config": {"name": "a", "units": 16, "activation": "relu", "input_shape": [12]}},
    {"class_name": "Dense", "config": {"name": "b", "units": 16, "activation": "tanh"}},
    {"class_name": "Dropout", "config": {"name": "drop", "rate": 0.25}},
    {"class_name": "Dense", "config": {"name": "c", "units": 3}}]}})";

inline constexpr char kNormalized[] = R"({"config": {"layers": [
    {"class_name": "Dense", "config": {"name": "a", "units": 4, "input_shape": [12]}},
    {"class_name": "BatchNormalization", "config": {"name": "norm", "momentum": 0.5}},
    {"class_name": "Dense", "config": {"name": "b", "units": 3}}]}})";

// The batch normalizations take the examples of all devices.
inline constexpr char kSynchronized[] = R"({"config": {"layers": [
    {"class_name": "Dense", "config": {"name": "a", "units": 8, "input_shape": [12]}},
    {"class_name": "BatchNormalization", "config": {"name": "norm", "momentum": 0.5, "synchronized": true,
       "gamma_initializer": {"class_name": "RandomUniform", "config": {"minval": 0.5, "maxval": 2}},
       "beta_initializer": "ones"}},
    {"class_name": "Dense", "config": {"name": "b", "units": 5, "activation": "tanh"}},
    {"class_name": "BatchNormalization", "config": {"name": "bare", "scale": false, "center": false,
                                                    "synchronized": true}},
    {"class_name": "Dense", "config": {"name": "c", "units": 3}}]}})";
inline constexpr char kSynchronizedCnn[] = R"({"config": {"layers": [
    {"class_name": "Conv2D", "config": {"name": "conv", "filters": 6, "kernel_size": 3, "input_shape": [6, 6, 2]}},
    {"class_name": "BatchNormalization", "config": {"name": "norm", "synchronized": true}},
    {"class_name": "Activation", "config": {"name": "relu", "activation": "relu"}},
    {"class_name": "Flatten", "config": {"name": "flat"}},
    {"class_name": "Dense", "config": {"name": "d", "units": 3}}]}})";

// Two inputs; a shared layer, called before and after another layer; a skip connection around both calls.
inline constexpr char kGraph[] = R"({"class_name": "Functional", "config": {"name": "graph", "layers": [
    {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 6]},
     "inbound_nodes": []},
    {"class_name": "InputLayer", "name": "y", "config": {"name": "y", "batch_shape": [null, 6]},
     "inbound_nodes": []},
    {"class_name": "Add", "name": "sum", "config": {"name": "sum"}, "inbound_nodes": [
      {"args": [[{"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}},
                 {"class_name": "__keras_tensor__", "config": {"keras_history": ["y", 0, 0]}}]], "kwargs": {}}]},
    {"class_name": "Dense", "name": "first", "config": {"name": "first", "units": 5}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["sum", 0, 0]}}], "kwargs": {}}]},
    {"class_name": "Dense", "name": "shared", "config": {"name": "shared", "units": 5, "activation": "tanh",
       "kernel_regularizer": {"class_name": "L2", "config": {"l2": 0.01}}}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["first", 0, 0]}}], "kwargs": {}},
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["middle", 0, 0]}}],
       "kwargs": {}}]},
    {"class_name": "Dense", "name": "middle", "config": {"name": "middle", "units": 5}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["shared", 0, 0]}}],
       "kwargs": {}}]},
    {"class_name": "Add", "name": "skip", "config": {"name": "skip"}, "inbound_nodes": [
      {"args": [[{"class_name": "__keras_tensor__", "config": {"keras_history": ["first", 0, 0]}},
                 {"class_name": "__keras_tensor__", "config": {"keras_history": ["shared", 1, 0]}},
                 {"class_name": "__keras_tensor__", "config": {"keras_history": ["middle", 0, 0]}}]],
       "kwargs": {}}]},
    {"class_name": "Dense", "name": "last", "config": {"name": "last", "units": 3}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["skip", 0, 0]}}], "kwargs": {}}]}],
  "input_layers": [["x", 0, 0], ["y", 0, 0]], "output_layers": [["last", 0, 0]]}})";

inline const LossSpec kLogits = {.from_logits = true};

}  // namespace cairn::nn

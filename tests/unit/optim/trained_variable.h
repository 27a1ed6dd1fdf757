// Shared by these tests: every update rule by name, and a variable with its slots under one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "optim/optimizer.h"
#include "optim/update.h"
#include "tests/support/whole_update.h"

namespace cairn::optim {

// A rule with its loops, and the name that its tests have.
struct Rule {
  const char* name;
  OptimizerConfig config;
};
inline void PrintTo(const Rule& rule, std::ostream* out) {
  *out << rule.name;
}

inline auto EveryRule() {
  return testing::Values(
      Rule{"Sgd", {"SGD", {{"learning_rate", 0.3}}}},
      Rule{"Momentum", {"SGD", {{"learning_rate", 0.3}, {"momentum", 0.9}}}},
      Rule{"Nesterov", {"SGD", {{"learning_rate", 0.3}, {"momentum", 0.9}, {"nesterov", 1}}}},
      Rule{"Adam", {"Adam", {{"learning_rate", 0.3}}}},
      Rule{"AmsGrad", {"Adam", {{"learning_rate", 0.3}, {"amsgrad", 1}}}},
      Rule{"AdamW", {"AdamW", {{"learning_rate", 0.3}}}},
      Rule{"Adagrad", {"Adagrad", {{"learning_rate", 0.3}}}},
      Rule{"Adadelta", {"Adadelta", {{"learning_rate", 0.3}}}},
      Rule{"Rmsprop", {"RMSprop", {{"learning_rate", 0.3}}}},
      Rule{"RmspropWithAll", {"RMSprop", {{"learning_rate", 0.3}, {"momentum", 0.9}, {"centered", 1}}}},
      Rule{"Adamax", {"Adamax", {{"learning_rate", 0.3}}}},
      Rule{"Nadam", {"Nadam", {{"learning_rate", 0.3}}}},
      Rule{"Ftrl", {"Ftrl", {{"learning_rate", 0.3}, {"l1_regularization_strength", 0.1}, {"beta", 0.2}}}},
      Rule{"FtrlWithAPower", {"Ftrl", {{"learning_rate", 0.3}, {"learning_rate_power", -0.3}}}},
      Rule{"Lion", {"Lion", {{"learning_rate", 0.3}}}}, Rule{"Lamb", {"Lamb", {{"learning_rate", 0.3}}}},
      Rule{"ClipvalueDecayAndEma",
           {"Adam", {{"learning_rate", 0.3}, {"clipvalue", 0.5}, {"weight_decay", 0.01}, {"use_ema", 1}}}},
      Rule{"TorchSgd", {"torch.SGD", {{"lr", 0.3}, {"weight_decay", 0.1}, {"maximize", 1}}}},
      Rule{"TorchMomentum", {"torch.SGD", {{"lr", 0.3}, {"momentum", 0.9}, {"dampening", 0.1}}}},
      Rule{"TorchNesterov", {"torch.SGD", {{"lr", 0.3}, {"momentum", 0.9}, {"nesterov", 1}}}},
      Rule{"TorchAdam", {"torch.Adam", {{"lr", 0.3}, {"weight_decay", 0.1}}}},
      Rule{"TorchAmsGrad", {"torch.AdamW", {{"lr", 0.3}, {"amsgrad", 1}}}},
      Rule{"TorchRmsprop", {"torch.RMSprop", {{"lr", 0.3}}}},
      Rule{"TorchRmspropWithAll", {"torch.RMSprop", {{"lr", 0.3}, {"momentum", 0.9}, {"centered", 1}}}},
      Rule{"TorchAdagrad", {"torch.Adagrad", {{"lr", 0.3}, {"lr_decay", 0.1}, {"weight_decay", 0.1}}}},
      Rule{"TorchAdadelta", {"torch.Adadelta", {{"lr", 0.3}}}},
      Rule{"TorchAdamax", {"torch.Adamax", {{"lr", 0.3}}}},
      Rule{"TorchNadam", {"torch.NAdam", {{"lr", 0.3}}}}, Rule{"TorchRadam", {"torch.RAdam", {{"lr", 0.3}}}});
}

// A variable, its slots and its count of updates.
class TrainedVariable {
 public:
  TrainedVariable(const OptimizerConfig& config, std::vector<float> initial_values, Isa isa = WidestIsa())
      : isa_(isa), optimizer_(MakeOptimizer(config, isa).value()), values_(std::move(initial_values)) {
    for (size_t s = 0; s < optimizer_->slot_names().size(); ++s) {
      slots_.emplace_back(values_.size(), optimizer_->initial_slot_value(static_cast<int>(s)));
    }
  }

  void Step(const std::vector<float>& gradient, bool last = false) {
    StepAt(optimizer_->learning_rate(t_), gradient, last);
  }

  void StepAt(float learning_rate, const std::vector<float>& gradient, bool last = false) {
    const int64_t count = static_cast<int64_t>(values_.size());
    const std::vector<Slot> slots = slots_in_place();
    std::vector<float> next(values_.size());
    const ContributedGradient mean = {gradient.data(), 1};
    const UpdateSlice whole = {0, count};
    EXPECT_EQ(UpdateWhole(*optimizer_, {++t_, learning_rate, last}, {&mean, 1}, {whole},
                          {count, values_.data(), slots, next.data()}, isa_),
              kAllFinite);
    values_ = std::move(next);
  }

  const Optimizer& optimizer() const { return *optimizer_; }
  std::vector<float>& values() { return values_; }
  std::vector<std::vector<float>>& slots() { return slots_; }
  std::vector<Slot> slots_in_place() {
    std::vector<Slot> slots;
    for (std::vector<float>& slot : slots_) slots.push_back(InPlace(slot.data()));
    return slots;
  }

 private:
  Isa isa_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
  int64_t t_ = 0;
};

// Absolute 1e-6: the tolerance of TensorFlow's own optimizer tests for values around 1.
inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                       double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

// A gradient that changes from step to step, including its sign.
inline std::vector<float> WavyGradient(int step) {
  const float k = static_cast<float>(step);
  return {0.1f * k, -0.5f + 0.07f * k, 1.0f / k, (step % 2 == 0) ? 0.25f : -0.125f};
}

// Compares ten steps of `config` on WavyGradient() with `move(t, i, gradient, value)`, which moves element i
// of the same variable in double.
template <typename Move>
void ExpectTenStepsAgree(const OptimizerConfig& config, Move move) {
  TrainedVariable variable(config, {1, 2, -3, 0.5});
  std::vector<double> values = {1, 2, -3, 0.5};
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = WavyGradient(t);
    variable.Step(gradient);
    for (size_t i = 0; i < values.size(); ++i) move(t, i, static_cast<double>(gradient[i]), values[i]);
  }
  ExpectNear(variable.values(), values);
}

}  // namespace cairn::optim

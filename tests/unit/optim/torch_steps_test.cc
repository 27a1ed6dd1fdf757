// Compares with torch, step by step: tests/support/data/torch_optimizers/make.py generated the numbers.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "optim/optimizer.h"
#include "tests/support/source_dir.h"
#include "tests/support/whole_update.h"

namespace cairn::optim {
namespace {

struct TorchCase {
  std::string name;
  OptimizerConfig config;
  std::map<std::string, std::vector<double>> changes;     // [hyperparameter][step - 1]
  std::map<std::string, std::vector<double>> values;      // after a step
  std::map<std::string, std::vector<double>> last_state;  // by slot
};

void PrintTo(const TorchCase& c, std::ostream* out) {
  *out << c.name;
}

std::vector<TorchCase> TorchCases() {
  std::ifstream file(InSource("tests/support/data/torch_optimizers/steps.json"));
  std::vector<TorchCase> cases;
  for (const nlohmann::json& c : nlohmann::json::parse(file)) {
    cases.push_back({.name = c["name"],
                     .config = {.name = c["optimizer"], .hyperparameters = c["hyperparameters"]},
                     .changes = c["changes"],
                     .values = c["values"],
                     .last_state = c["state"]});
  }
  return cases;
}

std::vector<float> Gradient(int step) {
  std::vector<float> gradient;
  for (int i = 0; i < 6; ++i)
    gradient.push_back(static_cast<float>((7 * step + 5 * i) % 17 - 8 + i % 3) / 16);
  return gradient;
}

void ExpectClose(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-7 + 1e-5 * std::abs(expected[i])) << "element " << i;
}

class TorchSteps : public testing::TestWithParam<TorchCase> {};

TEST_P(TorchSteps, FiftyAgree) {
  std::vector<float> values = {1, -2, 0.5, 3, -0.25, 0.125};
  std::map<std::string, std::vector<float>> slots;
  OptimizerConfig config = GetParam().config;
  for (int step = 1; step <= 50; ++step) {
    for (const auto& [name, by_step] : GetParam().changes)
      config.hyperparameters[name] = by_step[static_cast<size_t>(step - 1)];
    const auto optimizer = MakeOptimizer(config);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    std::vector<Slot> in_place;
    for (size_t s = 0; s < (*optimizer)->slot_names().size(); ++s) {
      std::vector<float>& slot = slots[std::string((*optimizer)->slot_names()[s])];
      if (step == 1) slot.resize(values.size(), (*optimizer)->initial_slot_value(static_cast<int>(s)));
      in_place.push_back(InPlace(slot.data()));
    }
    const std::vector<float> gradient = Gradient(step);
    const ContributedGradient mean = {gradient.data(), 1};
    const UpdateSlice whole = {0, 6};
    ASSERT_EQ(UpdateWhole(**optimizer, {.t = step, .learning_rate = (*optimizer)->learning_rate(0)},
                          {&mean, 1}, {whole}, {6, values.data(), in_place, values.data()}),
              kAllFinite);
    const auto expected = GetParam().values.find(std::to_string(step));
    if (expected != GetParam().values.end()) {
      SCOPED_TRACE(testing::Message() << "values after step " << step);
      ExpectClose(values, expected->second);
    }
  }
  EXPECT_EQ(slots.size(), GetParam().last_state.size());
  for (const auto& [name, expected] : GetParam().last_state) {
    SCOPED_TRACE(name);
    ExpectClose(slots[name], expected);
  }
}

std::string TestName(const testing::TestParamInfo<TorchCase>& info) {
  std::string name = info.param.name;
  name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }),
             name.end());
  return name;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TorchSteps, testing::ValuesIn(TorchCases()), TestName);

}  // namespace
}  // namespace cairn::optim

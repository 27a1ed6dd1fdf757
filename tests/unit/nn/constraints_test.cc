// Constraints of variables, as Keras writes them.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

// The constraint of the variable with this name.
std::optional<Constraint> ConstraintOf(const Model& model, const std::string& name) {
  for (const ModelVariable& variable : model.variables()) {
    if (variable.name == name) return variable.constraint;
  }
  ADD_FAILURE() << "no variable " << name;
  return std::nullopt;
}

// keras.Sequential(...).to_json() of Keras 3.15, without the fields that are null.
constexpr char kOfKeras3[] = R"(
    {"class_name": "InputLayer", "config": {"batch_shape": [null, 4, 4, 2], "name": "x"}},
    {"module": "keras.layers", "class_name": "Conv2D", "config": {"name": "conv", "filters": 3, "kernel_size": [3, 3],
      "kernel_constraint": {"module": "keras.constraints", "class_name": "MaxNorm",
                            "config": {"max_value": 1.5, "axis": [0, 1, 2]}, "registered_name": null},
      "bias_constraint": {"module": "keras.constraints", "class_name": "NonNeg", "config": {},
                          "registered_name": null}}},
    {"class_name": "SeparableConv2D", "config": {"name": "separable", "filters": 2, "kernel_size": [2, 2],
      "depthwise_constraint": {"module": "keras.constraints", "class_name": "UnitNorm", "config": {"axis": 0},
                               "registered_name": null},
      "pointwise_constraint": {"module": "keras.constraints", "class_name": "MinMaxNorm",
                               "config": {"min_value": 0.1, "max_value": 0.9, "rate": 0.5, "axis": -1},
                               "registered_name": null}}},
    {"class_name": "BatchNormalization", "config": {"name": "norm",
      "beta_constraint": {"class_name": "MaxNorm", "config": {"max_value": 1, "axis": 0}},
      "gamma_constraint": {"class_name": "NonNeg", "config": {}}}})";

TEST(Constraints, AreReadFromFilesOfKeras3) {
  const Model model = Model::FromJson(SequentialOf(kOfKeras3), "m").value();
  EXPECT_EQ(ConstraintOf(model, "conv/kernel"), (Constraint{.axes = {0, 1, 2}, .max_norm = 1.5f}));
  EXPECT_EQ(ConstraintOf(model, "conv/bias"), (Constraint{.non_negative = true}));
  EXPECT_EQ(ConstraintOf(model, "separable/depthwise_kernel"),
            (Constraint{.axes = {0}, .min_norm = 1, .max_norm = 1}));
  EXPECT_EQ(ConstraintOf(model, "separable/pointwise_kernel"),
            (Constraint{.axes = {3}, .min_norm = 0.1f, .max_norm = 0.9f, .rate = 0.5f}));
  EXPECT_EQ(ConstraintOf(model, "separable/bias"), std::nullopt);
  EXPECT_EQ(ConstraintOf(model, "norm/gamma"), (Constraint{.non_negative = true}));
  EXPECT_EQ(ConstraintOf(model, "norm/beta"), (Constraint{.axes = {0}, .max_norm = 1}));
  EXPECT_EQ(ConstraintOf(model, "norm/moving_mean"), std::nullopt);
}

TEST(Constraints, MayBeNamesWithTheDefaultsOfKeras) {
  const auto named = [](const std::string& name) {
    return ConstraintOf(
        Model::FromJson(SequentialOf(absl::StrCat(
                            R"({"class_name": "Dense", "config": {"name": "d", "units": 2, "input_shape": [3],
                                "kernel_constraint": ")",
                            name, R"("}})")),
                        "m")
            .value(),
        "d/kernel");
  };
  for (const char* name : {"NonNeg", "non_neg", "nonneg"}) {
    EXPECT_EQ(named(name), (Constraint{.non_negative = true})) << name;
  }
  EXPECT_EQ(named("max_norm"), (Constraint{.axes = {0}, .max_norm = 2}));
  EXPECT_EQ(named("UnitNorm"), (Constraint{.axes = {0}, .min_norm = 1, .max_norm = 1}));
  EXPECT_EQ(named("min_max_norm"), (Constraint{.axes = {0}, .max_norm = 1}));
}

TEST(Constraints, BelongToTheVariablesOfEachKindOfLayer) {
  const Model model = Model::FromJson(SequentialOf(R"(
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "name": "x"}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 5, "output_dim": 4,
        "embeddings_constraint": "unit_norm"}},
      {"class_name": "Bidirectional", "config": {"name": "both", "merge_mode": "sum",
        "layer": {"class_name": "LSTM", "config": {
        "name": "l", "units": 4, "return_sequences": true, "kernel_constraint": "max_norm",
        "recurrent_constraint": "unit_norm", "bias_constraint": "non_neg"}}}},
      {"class_name": "EinsumDense", "config": {"name": "einsum", "equation": "abc,cd->abd", "output_shape": [3, 4],
        "bias_axes": "d", "kernel_constraint": "non_neg", "bias_constraint": "max_norm"}},
      {"class_name": "LayerNormalization", "config": {"name": "norm", "gamma_constraint": "non_neg"}},
      {"class_name": "PReLU", "config": {"name": "p", "alpha_constraint": "non_neg"}})"),
                                      "m")
                          .value();
  int constrained = 0;
  for (const ModelVariable& variable : model.variables())
    constrained += variable.constraint.has_value() ? 1 : 0;
  EXPECT_EQ(constrained, 1 + 2 * 3 + 2 + 1 + 1);
}

TEST(Constraints, DoNotApplyToFrozenVariables) {
  const Model model =
      Model::FromJson(SequentialOf(R"({"class_name": "Dense", "config": {"name": "d", "units": 2,
          "input_shape": [3], "trainable": false, "kernel_constraint": "non_neg"}})"),
                      "m")
          .value();
  EXPECT_EQ(ConstraintOf(model, "d/kernel"), std::nullopt);
}

}  // namespace
}  // namespace cairn::nn

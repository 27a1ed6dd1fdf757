// Layers of transformers against numbers of Keras 3.15, and their refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/tensor_view.h"
#include "kernels/cpu/device.h"
#include "nn/batch.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const std::vector<float> kTokens = {0.5f, -1, 2, 1, 0.25f, -0.5f}, kOthers = {-1, 0.5f, 0.75f, 0.5f, -1, 2};

// A layer that is called on `call`, the arguments of Keras 3, where the inputs "a" and "b" have shapes like "3,2".
struct Tested {
  const char* class_name;
  const char* config;
  const char* call;
  const char *a = "3,2", *b = "2,3", *mask = "3,2";
};

std::string AttentionModel(const Tested& tested) {
  const auto input = [](const char* name, const char* shape) {
    return absl::StrCat(R"({"class_name": "InputLayer", "config": {"name": ")", name,
                        R"(", "batch_shape": [null,)", shape, "]}}, ");
  };
  return absl::StrCat(R"({"class_name": "Functional", "config": {"layers": [)", input("a", tested.a),
                      input("b", tested.b), input("mask", tested.mask), R"({"class_name": ")",
                      tested.class_name, R"(", "config": {"name": "tested", )", tested.config,
                      R"(}, "inbound_nodes": [)", tested.call,
                      R"(]}], "input_layers": [["a", 0, 0], ["b", 0, 0], ["mask", 0, 0]],
                      "output_layers": [["tested", 0, 0]]}})");
}

// Variables are filled with -0.5, -0.25, 0, 0.25, 0.5, and again.
std::vector<float> AttentionOutput(const Tested& tested,
                                   const std::vector<float>& mask = {1, 0, 0, 1, 1, 1}) {
  const auto model = Model::FromJson(AttentionModel(tested), "m");
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  std::vector<float> parameters(static_cast<size_t>(model->num_parameters()));
  for (const ModelVariable& variable : model->variables()) {
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i)
      parameters[static_cast<size_t>(variable.offset + i)] = static_cast<float>(i % 5) / 4 - 0.5f;
  }
  BatchView batch = {.examples = 1};
  const std::vector<float>* const values[] = {&kTokens, &kOthers, &mask};
  for (size_t i = 0; i < 3; ++i) {
    Shape shape = {1};
    for (const int64_t extent : model->inputs()[i].shape.dims()) shape.Append(extent);
    batch.inputs.push_back(TensorView::OfFloats(shape, *values[i]));
  }
  const std::vector<float> targets(static_cast<size_t>(model->output_shape().num_elements()));
  batch.targets = targets;
  const auto result = replica->Evaluate(parameters, batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? std::vector<float>(result->outputs.begin(), result->outputs.end())
                     : std::vector<float>();
}

std::string AttentionFault(const Tested& tested) {
  return std::string(Model::FromJson(AttentionModel(tested), "m").status().message());
}

constexpr char kCall[] = R"({"args": ["a", "b"], "kwargs": {}})";
constexpr char kHeads[] = R"("num_heads": 2, "key_dim": 2)";

TEST(MultiHeadAttention, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"MultiHeadAttention", kHeads, R"({"args": ["a", "b"], "kwargs": {}})"}),
              Pointwise(FloatNear(1e-6f),
                        {-0.54156238f, 0.39766705f, -0.70458913f, 0.25418699f, -0.59640777f, 0.34838164f}));
  EXPECT_THAT(AttentionOutput({"MultiHeadAttention", R"("num_heads": 2, "key_dim": 2, "output_shape": 1)",
                               R"({"args": ["a", "a"], "kwargs": {"use_causal_mask": true}})"}),
              Pointwise(FloatNear(1e-6f), {0.1875f, 0.40262461f, 0.24676329f}));
  EXPECT_THAT(
      AttentionOutput({"MultiHeadAttention", R"("num_heads": 1, "key_dim": 2)",
                       R"({"args": ["a", "b"], "kwargs": {"attention_mask": "mask"}})"}),
      Pointwise(FloatNear(1e-6f), {-0.6875f, -0.40625f, -0.625f, -0.71875f, -0.64888173f, -0.59934133f}));
}

TEST(MultiHeadAttention, TakesItsArgumentsInEveryForm) {
  const std::vector<float> expected =
      AttentionOutput({"MultiHeadAttention", kHeads, R"({"args": ["a", "b"], "kwargs": {}})"});
  for (
      const char* call :
      {R"({"args": ["a"], "kwargs": {"value": "b", "training": false}})", R"({"args": ["a", "b", "b"]})",
       R"({"args": [], "kwargs": {"key": "b", "query": "a", "value": "b", "return_attention_scores": false}})",
       R"([["a", 0, 0, {"value": ["b", 0, 0]}]])", R"([["a", 0, 0, {}], ["b", 0, 0, {}]])"}) {
    SCOPED_TRACE(call);
    EXPECT_EQ(AttentionOutput({"MultiHeadAttention", kHeads, call}), expected);
  }
}

TEST(MultiHeadAttention, AKeyMaskAndAValueMaskAreOne) {
  const auto masked = [](const char* call) {
    return AttentionOutput({"MultiHeadAttention", kHeads, call, "3,2", "2,3", "2"}, {1, 0});
  };
  const auto by_key = masked(R"({"args": ["a", "b"], "kwargs": {"key_mask": "mask"}})");
  EXPECT_EQ(by_key, masked(R"({"args": ["a", "b"], "kwargs": {"value_mask": "mask"}})"));
  EXPECT_NE(by_key, masked(R"({"args": ["a", "b"], "kwargs": {}})"));
}

TEST(GroupQueryAttention, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"GroupQueryAttention",
                               R"("head_dim": 1, "num_query_heads": 2, "num_key_value_heads": 1)",
                               R"({"args": ["a", "a"], "kwargs": {}})"}),
              Pointwise(FloatNear(1e-6f),
                        {0.10049129f, -0.23788297f, 0.22830045f, -0.16177785f, 0.07625723f, -0.23171419f}));
}

TEST(Attention, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"Attention", R"("use_scale": true)", R"({"args": [["a", "b"]], "kwargs": {}})",
                               "3,2", "3,2"}),
              Pointwise(FloatNear(1e-6f),
                        {-0.69971019f, 1.3439534f, -0.8152622f, 0.93043089f, -0.56846446f, 1.1697799f}));
  EXPECT_THAT(
      AttentionOutput({"Attention", R"("use_scale": false)",
                       R"({"args": [["a", "b"]], "kwargs": {"use_causal_mask": true}})", "3,2", "3,2"}),
      Pointwise(FloatNear(1e-6f), {-1.0f, 0.5f, 0.69870359f, 0.5f, -0.10285456f, 0.73452622f}));
}

TEST(AdditiveAttention, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"AdditiveAttention", R"("use_scale": true)",
                               R"({"args": [["a", "b"]], "kwargs": {}})", "3,2", "3,2"}),
              Pointwise(FloatNear(1e-6f),
                        {-0.597105f, 0.9897023f, -0.45637095f, 1.0112059f, -0.6207038f, 1.0212611f}));
  EXPECT_THAT(
      AttentionOutput({"AdditiveAttention", R"("use_scale": false)",
                       R"({"args": [["a", "b"]], "kwargs": {"use_causal_mask": true}})", "3,2", "3,2"}),
      Pointwise(FloatNear(1e-6f), {-1.0f, 0.5f, -0.024701625f, 0.5f, -0.058659762f, 0.9935178f}));
  EXPECT_THAT(
      AttentionOutput({"AdditiveAttention", R"("use_scale": true)",
                       R"({"args": [["a", "b"]], "kwargs": {"mask": [null, "mask"]}})", "3,2", "3,2", "3"},
                      {1, 0, 1}),
      Pointwise(FloatNear(1e-6f), {-1.0f, 1.1361636f, -1.0f, 1.2415717f, -1.0f, 1.1655025f}));
}

// Against central differences of the loss: of the variables before query and value, and of the scale.
TEST(AdditiveAttention, GradientsAreThoseOfTheLoss) {
  for (const char* call : {R"([["query", "value"]])", R"([["query", "value", "key"]])"}) {
    const auto dense = [](const char* name) {
      return absl::StrCat(R"({"class_name": "Dense", "config": {"name": ")", name,
                          R"(", "units": 3}, "inbound_nodes": [["x"]]}, )");
    };
    const std::string json = absl::StrCat(
        R"({"class_name": "Functional", "config": {"layers": [{"class_name": "InputLayer", "config": {"name": "x",
            "batch_shape": [null, 4, 2]}}, )",
        dense("query"), dense("value"), absl::StrContains(call, "key") ? dense("key") : "",
        R"({"class_name": "AdditiveAttention", "config": {"name": "tested"}, "inbound_nodes": [{"args": )",
        call,
        R"(, "kwargs": {"use_causal_mask": true}}]}],
            "input_layers": [["x", 0, 0]], "output_layers": [["tested", 0, 0]]}})");
    const auto model = Model::FromJson(json, "m");
    ASSERT_TRUE(model.ok()) << model.status();
    const auto device = kernels::CreateCpuDevice(0, 1).value();
    const auto replica =
        Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
    std::vector<float> x, targets(24), parameters = model->InitialParameters(3), gradients(parameters.size());
    for (int i = 0; i < 16; ++i) x.push_back(std::sin(static_cast<float>(i)));
    for (size_t i = 0; i < targets.size(); ++i) targets[i] = std::cos(static_cast<float>(i));
    BatchView batch = {.examples = 2, .targets = targets};
    batch.inputs.push_back(TensorView::OfFloats({2, 4, 2}, x));
    ASSERT_TRUE(replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).ok());
    const auto loss = [&](const std::vector<float>& at) {
      return replica->Evaluate(at, batch).value().sums.loss / 2;
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      constexpr float kStep = 1e-2f;
      std::vector<float> moved = parameters;
      moved[i] += kStep;
      const double high = loss(moved);
      moved[i] -= 2 * kStep;
      EXPECT_NEAR(gradients[i], (high - loss(moved)) / (2 * double{kStep}), 5e-4) << i;
    }
  }
}

TEST(RmsNormalization, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"RMSNormalization", R"("axis": -1)", R"(["a"])"}),
              Pointwise(FloatNear(1e-6f),
                        {-0.3162275f, 0.3162275f, -0.63245541f, -0.15811385f, -0.31622675f, 0.31622675f}));
}

TEST(EinsumDense, AgreesWithKeras) {
  EXPECT_THAT(AttentionOutput({"EinsumDense",
                               R"("equation": "abc,cde->abde", "output_shape": [3, 2, 2], "bias_axes": "d")",
                               R"(["a"])"}),
              Pointwise(FloatNear(1e-6f), {-1.25f, -0.125f, 0.0f, -0.125f, -1.0f, -1.5f, -0.5f, 0.25f,
                                           -0.875f, -0.3125f, -0.125f, -0.1875f}));
}

// As in Keras, the bias has 1 for axes behind its first one that it has not.
TEST(EinsumDense, ItsBiasHasTheShapeOfKeras) {
  const auto model = Model::FromJson(
      SequentialOf(
          R"({"class_name": "EinsumDense", "config": {"equation": "abc,cd->abd", "output_shape": [3, 8],
                       "bias_axes": "b", "input_shape": [3, 4]}})"),
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->variables().size(), 2u);
  EXPECT_EQ(model->variables()[1].shape, Shape({3, 1}));
}

TEST(AttentionLayers, RefuseWhatTheyLackByName) {
  const auto heads = [&](const char* config, const char* call = kCall) {
    return AttentionFault({"MultiHeadAttention", config, call});
  };
  EXPECT_THAT(heads(R"("num_heads": 2, "key_dim": 2, "attention_axes": [2])"),
              HasSubstr("attention_axes: only"));
  EXPECT_THAT(heads(R"("num_heads": 2, "key_dim": 2, "dropout": 1)"),
              HasSubstr("dropout: 1 is not in [0, 1)"));
  EXPECT_THAT(heads(R"("num_heads": 2, "key_dim": 2, "use_gate": true)"), HasSubstr("use_gate"));
  EXPECT_THAT(heads(kHeads, R"({"args": ["a"], "kwargs": {}})"),
              HasSubstr("a call names no query or no value"));
  EXPECT_THAT(heads(kHeads, R"({"args": ["a", "b"], "kwargs": {"return_attention_scores": true}})"),
              HasSubstr("return_attention_scores"));
  EXPECT_THAT(heads(kHeads, R"({"args": ["a", "b"], "kwargs": {"query_mask": "mask"}})"),
              HasSubstr("query_mask: Keras ignores it here"));
  EXPECT_THAT(heads(kHeads, R"({"args": ["a", "b"], "kwargs": {"key_mask": "mask"}})"),
              HasSubstr("key_mask: [3,2] is not supported, expected [2]"));
  EXPECT_THAT(heads(kHeads, R"({"args": ["a", "b"], "kwargs": {"key_mask": "a", "value_mask": "a"}})"),
              HasSubstr("key_mask and value_mask in one call are not supported"));
  EXPECT_THAT(heads(kHeads, R"("a")"), HasSubstr("inbound_nodes: expected calls, got \"a\""));
  EXPECT_THAT(heads(R"("num_heads": 2, "key_dim": 2, "call": {})"),
              HasSubstr("call is not a field of Keras"));
  EXPECT_THAT(AttentionFault({"Attention", R"("use_scale": false)",
                              R"({"args": [["a", "a"]], "kwargs": {"mask": "mask"}})"}),
              HasSubstr("kwargs: mask: expected a list of masks, got \"mask\""));
  EXPECT_THAT(AttentionFault({"GroupQueryAttention",
                              R"("head_dim": 1, "num_query_heads": 3, "num_key_value_heads": 2)", kCall}),
              HasSubstr("num_query_heads: 3 is not a multiple of num_key_value_heads, 2"));
  EXPECT_THAT(AttentionFault({"Attention", R"("use_scale": false)", R"({"args": [["a", "b"]]})"}),
              HasSubstr("query [3,2] and key [2,3] differ in the axis of the product"));
  EXPECT_THAT(AttentionFault({"Attention", R"("score_mode": "concat")", R"({"args": [["a", "a"]]})"}),
              HasSubstr("score_mode"));
  const auto einsum = [](const char* config) { return AttentionFault({"EinsumDense", config, R"(["a"])"}); };
  EXPECT_THAT(einsum(R"("equation": "abc,adc->abd", "output_shape": 4, "bias_axes": "d")"),
              HasSubstr("'abc,adc->abd' is not supported, only products of matrices"));
  EXPECT_THAT(einsum(R"("equation": "abc,cd->abd", "output_shape": [null])"),
              HasSubstr("output_shape: the extents of d are required"));
  EXPECT_THAT(einsum(R"("equation": "abc,cd->abd", "output_shape": 4, "bias_axes": "a")"),
              HasSubstr("bias_axes: 'a' is not an axis of the output after the batch"));
  EXPECT_THAT(einsum(R"("equation": "abcd,de->abce", "output_shape": 4)"),
              HasSubstr("does not fit input [3,2]"));
}

}  // namespace
}  // namespace cairn::nn

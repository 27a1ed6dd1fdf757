// Layers and models of keras_hub, against numbers that it computed (tests/support/data/keras_hub/make.py), and what is
// refused of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/unit/nn/hub_models.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kLearningRate = 0.005f;

std::set<std::string> KerasNames(const Model& model) {
  std::set<std::string> names;
  for (const ModelVariable& variable : model.variables()) names.insert(KerasName(variable.name));
  return names;
}

class KerasHub : public testing::TestWithParam<const char*> {
 protected:
  static void Check(const json& recorded, kernels::Device& device) {
    const auto model = ModelOf(recorded);
    ASSERT_TRUE(model.ok()) << model.status();
    auto names = recorded["variables"].get<std::set<std::string>>();
    if (recorded["name"] == "nested") names.erase("token_embedding/reverse_embeddings");  // never used
    EXPECT_EQ(KerasNames(*model), names);

    std::vector<float> values;  // [example, input]
    const auto examples = recorded["inputs"].front()["shape"][0].get<int64_t>();
    for (int64_t example = 0; example < examples; ++example) {
      for (const ModelInput& input : model->inputs()) {
        const auto all = recorded["inputs"][input.name]["values"].get<std::vector<float>>();
        const auto row = static_cast<std::ptrdiff_t>(input.shape.num_elements());
        values.insert(values.end(), all.begin() + example * row, all.begin() + (example + 1) * row);
      }
    }
    const ModelInputs inputs(*model, examples, values);
    const std::vector<float> targets(recorded["outputs"].size());
    const BatchView batch = {.examples = examples, .inputs = inputs.views(), .targets = targets};
    const auto replica =
        Replica::Create(*model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, device);
    ASSERT_TRUE(replica.ok()) << replica.status();

    std::vector<float> parameters = RecordedParameters(*model), gradients(parameters.size());
    for (size_t step = 0; step < recorded["losses"].size(); ++step) {
      const auto result =
          (*replica)->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {});
      ASSERT_TRUE(result.ok()) << result.status();
      const double loss = recorded["losses"][step].get<double>();
      EXPECT_NEAR(result->sums.loss / static_cast<double>(examples), loss, 1e-4 * loss) << "step " << step;
      for (size_t i = 0; step == 0 && i < targets.size(); ++i)
        ASSERT_NEAR(result->outputs[i], recorded["outputs"][i].get<double>(), 1e-4) << i;
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= kLearningRate * gradients[i];
    }
  }
};

TEST_P(KerasHub, OutputsAndLossesOfThreeStepsAreThoseOfKerasHub) {
  const auto device = GetParam() == std::string("Cpu")
                          ? kernels::CreateCpuDevice(0, 2).value()
                          : kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value();
  for (const json& recorded : RecordedModels()) {
    SCOPED_TRACE(recorded["name"].get<std::string>());
    Check(recorded, *device);
  }
}

TEST(KerasHubModels, TasksOnOtherBackbonesAreRefused) {
  const auto fault = [](const char* task, const char* backbone) {
    const std::string text =
        absl::StrCat(R"({"class_name": ")", task, R"(", "registered_name": "keras_hub>)", task,
                     R"(", "config": {"name": "t", "num_classes": 2, "backbone": )", backbone, "}}");
    return std::string(Model::FromJson(text, "m").status().message());
  };
  EXPECT_THAT(fault("GPT2CausalLM", R"({"class_name": "GemmaBackbone", "config": {}})"),
              HasSubstr("backbone: expected GPT2Backbone or LlamaBackbone, got \"GemmaBackbone\""));
  EXPECT_THAT(fault("BertTextClassifier", R"({"class_name": "GPT2Backbone", "config": {}})"),
              HasSubstr("backbone: expected BertBackbone"));
  for (const char* config : {R"({"layers": 5})", R"("x")", R"({"layers": [5], "input_layers": [[1]]})"}) {
    EXPECT_THAT(fault("GPT2CausalLM",
                      absl::StrCat(R"({"class_name": "GPT2Backbone", "config": )", config, "}").c_str()),
                HasSubstr("expected the sizes that keras_hub writes"));
  }
  EXPECT_THAT(
      fault("GPT2CausalLM", R"({"class_name": "GPT2Backbone", "registered_name": "keras_hub>GPT2Backbone",
      "config": {"vocabulary_size": 5, "num_layers": 2000000000, "num_heads": 1, "hidden_dim": 2,
      "intermediate_dim": 2}})"),
      HasSubstr("num_layers: 2000000000, at most 1000"));
}

// keras_hub writes only sizes of a backbone.
TEST(KerasHubModels, TheBackboneOfBertHasTwoOutputs) {
  const auto model =
      Model::FromJson(R"({"module": "keras_hub.src.models.bert.bert_backbone",
      "class_name": "BertBackbone", "registered_name": "keras_hub>BertBackbone", "config": {"name": "bert",
      "vocabulary_size": 11, "num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 8,
      "max_sequence_length": 9, "num_segments": 2}})",
                      "m", {.given = {{"token_ids", {5}}, {"segment_ids", {5}}, {"padding_mask", {5}}}});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->outputs().size(), 2u);
  EXPECT_EQ(model->outputs()[0].name, "pooled_output");
  EXPECT_EQ(model->outputs()[0].shape, Shape({6}));
  EXPECT_EQ(model->outputs()[1].name, "sequence_output");
  EXPECT_EQ(model->outputs()[1].shape, Shape({5, 6}));
}

INSTANTIATE_TEST_SUITE_P(, KerasHub, testing::Values("Cpu", "Cuda"),
                         [](const auto& tested) { return std::string(tested.param); });

constexpr char kDecoder[] =
    R"("class_name": "TransformerDecoder", "config": {"name": "decoder", "intermediate_dim": 4, "num_heads": 2,
       "decoder_sequence_shape": [null, 5, 6]})";

// A model of a sequence "x" [5, 6] and masks "a" [5] and "b" [5], which the layer is called on.
std::string HubModel(absl::string_view layer, absl::string_view calls) {
  const auto input = [](absl::string_view name, absl::string_view shape) {
    return absl::StrCat(R"({"class_name": "InputLayer", "config": {"name": ")", name,
                        R"(", "batch_shape": [null,)", shape, "]}}, ");
  };
  return absl::StrCat(R"({"class_name": "Functional", "config": {"layers": [)", input("x", "5,6"),
                      input("a", "5"), input("b", "5"), "{", layer,
                      R"(, "name": "decoder", "inbound_nodes": [)", calls,
                      R"(]}], "input_layers": ["x", "a", "b"], "output_layers": ["decoder"]}})");
}

std::string Fault(const std::string& model) {
  return std::string(Model::FromJson(model, "m").status().message());
}

TEST(HubLayers, TakeTheirArgumentsInEveryForm) {
  for (const char* call :
       {R"({"args": ["x", null, "a"]})", R"({"args": ["x"], "kwargs": {"decoder_padding_mask": "a"}})",
        R"([["x", 0, 0, {"decoder_padding_mask": ["a", 0, 0]}]])"}) {
    const auto model = Model::FromJson(HubModel(kDecoder, call), "m");
    ASSERT_TRUE(model.ok()) << call << ": " << model.status();
    EXPECT_EQ(model->inputs().size(), 3u);
    EXPECT_EQ(model->nodes()[0].inputs, (std::vector<int>{-1, -1, -2})) << call;
    EXPECT_EQ(model->nodes()[0].groups.back().group, "_self_attention_layer");
  }
}

TEST(HubLayers, OtherArgumentsAndOptionsAreRefusedByName) {
  EXPECT_THAT(
      Fault(HubModel(kDecoder, R"({"args": ["x"], "kwargs": {"self_attention_cache": "a"}})")),
      HasSubstr("layer 'decoder' (TransformerDecoder), line 1: inbound_nodes: kwargs: self_attention_cache"));
  EXPECT_THAT(Fault(HubModel(kDecoder, R"({"args": ["x"]}, {"args": ["x", null, "a"]})")),
              HasSubstr("layer 'decoder': inbound_nodes: calls with different arguments"));
  EXPECT_THAT(
      Fault(HubModel(
          absl::StrReplaceAll(kDecoder, {{R"("decoder_sequence_shape": [null, 5, 6])", R"("dropout": 0)"}}),
          R"({"args": ["x"]})")),
      HasSubstr("layer 'decoder': build_config: required"));
  EXPECT_THAT(Fault(HubModel(absl::StrCat(R"("registered_name": "mine>TransformerDecoder", )", kDecoder),
                             R"({"args": ["x"]})")),
              HasSubstr("layer 'decoder': is a custom class, registered as 'mine>TransformerDecoder'"));
  EXPECT_THAT(Fault(HubModel(absl::StrReplaceAll(kDecoder, {{"\"num_heads\": 2", "\"num_heads\": 7"}}),
                             R"({"args": ["x"]})")),
              HasSubstr("layer 'decoder': num_heads: 7 is more than the width of the sequence, 6"));
}

TEST(HubModels, NameWhatTheirConfigLacks) {
  EXPECT_THAT(Fault(R"({"class_name": "GPT2Backbone", "config": {"vocabulary_size": 5}})"),
              HasSubstr("m: GPT2Backbone: num_layers: required"));
  EXPECT_THAT(Fault(R"({"class_name": "GPT2CausalLM", "config": {"backbone": {"class_name": "Dense"}}})"),
              HasSubstr("m: GPT2CausalLM: backbone: expected GPT2Backbone or LlamaBackbone, got \"Dense\""));
  EXPECT_THAT(Fault(R"({"class_name": "GemmaCausalLM", "config": {}})"),
              HasSubstr("'GemmaCausalLM' models are not supported, only Sequential and Functional, and of "
                        "keras_hub BertBackbone"));
}

constexpr char kTied[] = R"({"class_name": "Functional", "config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, 3], "dtype": "int32"}},
    {"class_name": "ReversibleEmbedding", "config": {"name": "words", "input_dim": 5, "output_dim": 2, OPTIONS},
     "inbound_nodes": [{"args": ["ids"]}, {"args": [["words", 0, 0]], "kwargs": {"reverse": true}}]}],
  "input_layers": ["ids"], "output_layers": [["words", 1, 0]]}})";

TEST(ReversibleEmbedding, ReverseCallsShareTheTable) {
  const auto tied = Model::FromJson(absl::StrReplaceAll(kTied, {{"OPTIONS", R"("tie_weights": true)"}}), "m");
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_THAT(LayerNames(*tied), ElementsAre("words", "words/reverse"));
  EXPECT_THAT(VariableNames(*tied), ElementsAre("words/embeddings"));
  EXPECT_EQ(tied->output_shape(), (Shape{3, 5}));

  const auto untied =
      Model::FromJson(absl::StrReplaceAll(kTied, {{"OPTIONS", R"("tie_weights": false)"}}), "m");
  ASSERT_TRUE(untied.ok()) << untied.status();
  EXPECT_THAT(VariableNames(*untied), ElementsAre("words/embeddings", "words/reverse_embeddings"));
  EXPECT_EQ(untied->nodes()[1].groups.back().group, untied->nodes()[0].groups.back().group);
}

TEST(ReversibleEmbedding, RefusesASoftCap) {
  EXPECT_THAT(Fault(absl::StrReplaceAll(kTied, {{"OPTIONS", R"("logit_soft_cap": 30)"}})),
              HasSubstr("layer 'words/reverse' (ReverseEmbedding), line 3: logit_soft_cap"));
}

std::string Indexed(absl::string_view index) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"layers": [
      {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5, 6]}},
      {"class_name": "GetItem", "module": "keras.src.ops.numpy", "name": "step", "config": {"name": "step"},
       "inbound_nodes": [{"args": ["x", [{"class_name": "__slice__", "config": {"start": null, "stop": null,
        "step": null}}, )",
                      index, R"(]], "kwargs": {}}]}],
    "input_layers": ["x"], "output_layers": ["step"]}})");
}

TEST(SelectStep, OtherIndicesAreRefused) {
  EXPECT_TRUE(Model::FromJson(Indexed("-5"), "m").ok());
  for (const char* index : {"5", "-6"})
    EXPECT_THAT(Fault(Indexed(index)), HasSubstr(absl::StrCat("has no vector at step ", index)));
}

TEST(Rotary, RefusesOddWidthsAndOtherTypes) {
  const auto fault = [](absl::string_view config) {
    return Fault(HubModel(
        absl::StrCat(R"("class_name": "RotaryEmbedding", "config": {"name": "decoder")", config, "}"),
        R"({"args": ["a"]})"));
  };
  EXPECT_THAT(fault(""), HasSubstr("input [5] is not a sequence of vectors with an even number of elements"));
  EXPECT_THAT(fault(R"(, "rope_type": "yarn")"), HasSubstr("rope_type"));
}

}  // namespace
}  // namespace cairn::nn

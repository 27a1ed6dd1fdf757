#include "worker/inputs/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "nn/replica/replica.h"
#include "tests/support/source_dir.h"
#include "tests/unit/nn/hub_models.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The scores of the next token are the row of the token before: windows of 3 tokens, of which there are 4.
nn::Model NextTokens() {
  return nn::Model::FromJson(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "dtype": "int32"}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 4, "output_dim": 4}}]}})",
                             "model.json")
      .value();
}
// After 0 comes 1, then 2, then 3, then 0.
constexpr float kCycle[] = {0, 5, 0, 0, 0, 0, 5, 0, 0, 0, 0, 5, 5, 0, 0, 0};

std::vector<int64_t> Generated(const GenerationRequest& request) {
  std::vector<int64_t> tokens;
  const absl::Status status = Generate(request, [&](size_t, int64_t token) { tokens.push_back(token); });
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

std::string RefusalOf(const GenerationRequest& request) {
  return std::string(Generate(request, [](size_t, int64_t) {}).message());
}

TEST(Generate, ThePromptMayBeShorterOrLongerThanTheWindow) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(Generated({.model = model, .parameters = kCycle, .prompts = {{2}}, .count = 5}),
              ElementsAre(3, 0, 1, 2, 3));
  EXPECT_THAT(Generated({.model = model, .parameters = kCycle, .prompts = {{1, 1, 1, 1, 3}}, .count = 2}),
              ElementsAre(0, 1));
}

TEST(Generate, OnlyTokensOfTheVocabularyAreDrawn) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(
      Generated({.model = model, .parameters = kCycle, .prompts = {{1}}, .count = 3, .vocabulary = 3}),
      ElementsAre(2, 0, 1))
      << "3 would come after 2; of equal scores the first is taken";
}

// A model that is not compiled does not say what its outputs are.
TEST(Generate, OutputsThatAddUpToOneAreProbabilities) {
  const nn::Model model = NextTokens();
  constexpr float kShares[] = {.1f, .7f, .1f, .1f, .1f, .1f, .7f, .1f,
                               .1f, .1f, .1f, .7f, .7f, .1f, .1f, .1f};
  GenerationRequest request = {
      .model = model, .parameters = kShares, .prompts = {{0}}, .count = 30, .sampling = {.temperature = 1}};
  const std::vector<int64_t> as_logits = Generated(request);
  request.from_logits = false;
  const std::vector<int64_t> as_shares = Generated(request);
  EXPECT_NE(as_shares, as_logits);
  request.from_logits = std::nullopt;
  EXPECT_EQ(Generated(request), as_shares);
}

TEST(Generate, TheSameSeedDrawsTheSameTokens) {
  const nn::Model model = NextTokens();
  GenerationRequest request = {
      .model = model, .parameters = kCycle, .prompts = {{0}}, .count = 20, .sampling = {.temperature = 5}};
  const std::vector<int64_t> first = Generated(request);
  EXPECT_EQ(Generated(request), first);
  request.sampling.seed = 1;
  EXPECT_NE(Generated(request), first);
}

TEST(Generate, OtherModelsAndPromptsAreRefused) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompts = {{}}, .count = 1}),
              HasSubstr("is empty"));
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompts = {{1, 4}}, .count = 1}),
              HasSubstr("token 1 of the prompt is 4, and the table of the model has ids from 0 to 3"));
  EXPECT_THAT(
      RefusalOf({.model = model, .parameters = kCycle, .prompts = {{1}}, .count = 1, .vocabulary = 5}),
      HasSubstr("the vocabulary has 5 tokens"));
  EXPECT_THAT(
      RefusalOf({.model = model, .parameters = kCycle, .prompts = {{3}}, .count = 1, .vocabulary = 3}),
      HasSubstr("token 0 of the prompt is 3, and the vocabulary has ids from 0 to 2"));
  const auto floats = nn::Model::FromJson(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3]}},
      {"class_name": "Dense", "config": {"name": "d", "units": 1}}]}})",
                                          "model.json");
  const std::vector<float> dense(4);
  EXPECT_THAT(RefusalOf({.model = *floats, .parameters = dense, .prompts = {{1}}, .count = 1}),
              HasSubstr("the model does not continue tokens"));
}

nlohmann::json GeneratedByKerasHub() {
  std::ifstream file(InSource("tests/support/data/keras_hub/generated.json"));
  return nlohmann::json::parse(file);
}

std::vector<float> ParametersOf(const nlohmann::json& recorded, const nn::Model& model) {
  std::vector<float> parameters = nn::RecordedParameters(model);
  for (float& parameter : parameters) parameter *= recorded["factor"].get<float>();
  return parameters;
}

// The rows that the model generates: one for each source, or one without sources.
std::vector<std::vector<int64_t>> Rows(GenerationRequest request, const nlohmann::json& recorded) {
  for (const nlohmann::json& source : recorded["sources"]) {
    request.prompts.push_back(recorded["prompt"]);
    if (!source.is_null()) request.sources.push_back(source);
  }
  std::vector<std::vector<int64_t>> rows(request.prompts.size());
  const absl::Status status =
      Generate(request, [&](size_t row, int64_t token) { rows[row].push_back(token); });
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

// tests/support/data/keras_hub/make_generated.py: GPT-2, Llama, and an encoder with a decoder; with one beam and three.
TEST(Generate, TokensAreThoseOfKerasHub) {
  int checked = 0;
  for (const nlohmann::json& recorded : GeneratedByKerasHub()) {
    SCOPED_TRACE(absl::StrCat(recorded["name"].get<std::string>(), ", beams: ", recorded["beams"].dump()));
    nn::InputSizes sizes;
    if (recorded["name"] != "translation") sizes.given = {{"token_ids", {7}}, {"padding_mask", {7}}};
    const auto model = nn::Model::FromJson(recorded["model"].dump(), "model.json", sizes);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<float> parameters = ParametersOf(recorded, *model);
    const auto expected = recorded["rows"].get<std::vector<std::vector<int64_t>>>();
    const GenerationRequest request = {.model = *model,
                                       .parameters = parameters,
                                       .prompts = {},
                                       .count = static_cast<int64_t>(expected[0].size()),
                                       .beams = recorded["beams"].get<int64_t>()};
    EXPECT_EQ(Rows(request, recorded), expected);
    ++checked;
  }
  EXPECT_EQ(checked, 6);
}

TEST(Generate, ADecoderEndsBeforeTheEndTokenAndWithItsWindow) {
  const nlohmann::json recorded = GeneratedByKerasHub()[4];
  ASSERT_EQ(recorded["name"], "translation");
  const auto model = nn::Model::FromJson(recorded["model"].dump(), "model.json");
  const std::vector<float> parameters = ParametersOf(recorded, *model);
  GenerationRequest request = {
      .model = *model, .parameters = parameters, .prompts = {}, .count = 20, .end = 0};
  EXPECT_THAT(Rows(request, recorded), ElementsAre(ElementsAre(4, 4), ElementsAre(4), ElementsAre(4)));
  request.end = 11;
  request.prompts = {{1}};
  EXPECT_THAT(RefusalOf(request), HasSubstr("the end token 11 is not one of the model's, from 0 to 10"));
  request.end = std::nullopt;
  request.prompts.clear();
  EXPECT_EQ(Rows(request, recorded)[0].size(), 7u) << "a token after each of 7 positions";

  request.prompts = {{1}};
  EXPECT_THAT(RefusalOf(request), HasSubstr("the model has an encoder: give what it reads"));
  request.sources = {{9}};
  EXPECT_THAT(RefusalOf(request),
              HasSubstr("token 0 of the source is 9, and the table of the model has ids"));
  request.sources = {{1, 1, 1, 1, 1, 1}};
  EXPECT_THAT(RefusalOf(request),
              HasSubstr("the source has 6 tokens, and the model's input 'encoder_inputs' has 5"));
  request.decoder_input = "words";
  EXPECT_THAT(
      RefusalOf(request),
      HasSubstr("its inputs are 'encoder_inputs', 'decoder_inputs', and expected are two, one of which "
                "is 'words', --decoder_input"));
}

// Embeddings of 3 positions, of which attention sees the mask of id 0, and a sum of all earlier ones.
constexpr char kCausal[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, 4], "dtype": "int32"}},
    {"class_name": "TokenAndPositionEmbedding", "config": {"name": "e", "vocabulary_size": 7, "sequence_length": 4,
      "embedding_dim": 6, "mask_zero": true}, "inbound_nodes": [{"args": ["ids"]}]},
    {"class_name": "MultiHeadAttention", "config": {"name": "a", "num_heads": 2, "key_dim": 3},
     "inbound_nodes": [{"args": ["e", "e"], "kwargs": {"use_causal_mask": true}}]},
    LAYER
    {"class_name": "Dense", "config": {"name": "d", "units": 7}, "inbound_nodes": [{"args": ["LAST"]}]}],
  "input_layers": ["ids"], "output_layers": ["d"]}})";

// The most probable token after each window, by a replica that computes all of it.
std::vector<int64_t> ByWholeWindows(const nn::Model& model, absl::Span<const float> parameters,
                                    std::vector<int64_t> tokens, int64_t count, size_t drop) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto objective = nn::Objective::ForAnyOutputs(model);
  const auto replica = nn::Replica::Create(model, objective, *device).value();
  const std::vector<float> targets(static_cast<size_t>(objective.TargetsPerExample(model)));
  std::vector<int64_t> added;
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    while (tokens.size() - begin > 4) begin += drop;
    int32_t window[4] = {};
    for (size_t at = begin; at < tokens.size(); ++at) window[at - begin] = static_cast<int32_t>(tokens[at]);
    const auto result =
        replica->Evaluate(parameters, {.examples = 1,
                                       .inputs = {{.dtype = DType::kInt32, .shape = {1, 4}, .data = window}},
                                       .targets = targets});
    const auto scores =
        result->outputs.begin() + static_cast<std::ptrdiff_t>((tokens.size() - begin - 1) * 7);
    added.push_back(std::max_element(scores, scores + 7) - scores);
    tokens.push_back(added.back());
  }
  return added;
}

// A mask that lets each token see only those since the latest id 3.
constexpr char kSameText[] = R"(
    {"class_name": "Equal", "module": "keras.src.ops.numpy", "config": {"name": "is_end"},
     "inbound_nodes": [{"args": ["ids", 3]}]},
    {"class_name": "Cumsum", "module": "keras.src.ops.numpy", "config": {"name": "text", "axis": 1, "dtype": "int32"},
     "inbound_nodes": [{"args": ["is_end"]}]},
    {"class_name": "ExpandDims", "module": "keras.src.ops.numpy", "config": {"name": "of_queries", "axis": 2},
     "inbound_nodes": [{"args": ["text"]}]},
    {"class_name": "ExpandDims", "module": "keras.src.ops.numpy", "config": {"name": "of_keys", "axis": 1},
     "inbound_nodes": [{"args": ["text"]}]},
    {"class_name": "Equal", "module": "keras.src.ops.numpy", "config": {"name": "same"},
     "inbound_nodes": [{"args": ["of_queries", "of_keys"]}]},)";

// Positions that are computed once, a mask of id 0, which needs whole windows, and layers that need them always.
TEST(Generate, TokensAreThoseOfWholeWindows) {
  const std::string simple = absl::StrReplaceAll(kCausal, {{"LAYER", ""}, {"LAST", "a"}});
  const std::string recurrent = absl::StrReplaceAll(
      kCausal,
      {{"LAYER", R"({"class_name": "GRU", "config": {"name": "r", "units": 6, "return_sequences": true},
                   "inbound_nodes": [{"args": ["a"]}]},)"},
       {"LAST", "r"}});
  const std::string packed = absl::StrReplaceAll(
      kCausal, {{R"("use_causal_mask": true)", R"("use_causal_mask": true, "attention_mask": "same")"},
                {"LAYER", kSameText},
                {"LAST", "a"}});
  std::set<int64_t> drawn;
  for (const std::string& json : {simple, recurrent, packed}) {
    const auto model = nn::Model::FromJson(json, "m");
    ASSERT_TRUE(model.ok()) << model.status();
    for (const uint64_t seed : {1, 2, 3, 4}) {
      std::vector<float> parameters = model->InitialParameters(seed);
      for (float& parameter : parameters) parameter *= 10;
      for (const int64_t drop : {1, 3}) {
        const std::vector<int64_t> tokens = Generated(
            {.model = *model, .parameters = parameters, .prompts = {{2, 5}}, .count = 12, .drop = drop});
        EXPECT_EQ(tokens, ByWholeWindows(*model, parameters, {2, 5}, 12, static_cast<size_t>(drop)))
            << "seed " << seed << ", drop " << drop;
        drawn.insert(tokens.begin(), tokens.end());
      }
    }
  }
  EXPECT_GT(drawn.size(), 4u);
  EXPECT_EQ(drawn.count(0), 1u) << "no case has the id that is masked";
  EXPECT_EQ(drawn.count(3), 1u) << "no case ends a text";
}

TEST(Generate, AModelThatReadsLaterTokensIsRefused) {
  const auto model = nn::Model::FromJson(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "dtype": "int32"}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 4, "output_dim": 3}},
      {"class_name": "Permute", "config": {"name": "p", "dims": [2, 1]}}]}})",
                                         "model.json");
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_THAT(RefusalOf({.model = *model, .parameters = rows, .prompts = {{1}}, .count = 1}),
              HasSubstr("the model is not causal"));
}

// A model that looks for one id anywhere in the window, which a window of other ids does not show.
TEST(Generate, AModelThatLooksForALaterTokenIsRefused) {
  const std::string json = absl::StrReplaceAll(
      kCausal,
      {{"LAYER", R"({"class_name": "Equal", "module": "keras.src.ops.numpy", "config": {"name": "is_5"},
                              "inbound_nodes": [{"args": ["ids", 5]}]},
                             {"class_name": "Any", "module": "keras.src.ops.numpy", "config": {"name": "any", "axis": 1},
                              "inbound_nodes": [{"args": ["is_5"]}]},
                             {"class_name": "Reshape", "config": {"name": "has_5", "target_shape": [1, 1]},
                              "inbound_nodes": [{"args": ["any"]}]},
                             {"class_name": "Add", "config": {"name": "sum"}, "inbound_nodes": [{"args": [["a", "has_5"]]}]},)"},
       {"LAST", "sum"}});
  const auto model = nn::Model::FromJson(json, "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> parameters = model->InitialParameters(1);
  EXPECT_THAT(RefusalOf({.model = *model, .parameters = parameters, .prompts = {{2, 1}}, .count = 1}),
              HasSubstr("the model is not causal"));
}

// How often each token is drawn in `draws` draws.
std::map<int64_t, int> Counts(const std::vector<float>& logits, const SamplingOptions& options, int draws) {
  std::map<int64_t, int> counts;
  Random random(1, "test");
  for (int i = 0; i < draws; ++i) ++counts[DrawToken(logits, options, random)];
  return counts;
}

TEST(DrawToken, FrequenciesAreTheSoftmaxOfLogitsDividedByTheTemperature) {
  const std::vector<float> logits = {std::log(1.0f), std::log(16.0f), std::log(4.0f)};
  auto counts = Counts(logits, {.temperature = 2}, 7000);  // 1 : 4 : 2
  EXPECT_NEAR(counts[0], 1000, 120);
  EXPECT_NEAR(counts[1], 4000, 170);
  EXPECT_NEAR(counts[2], 2000, 150);
}

TEST(DrawToken, TopKAndTopPLeaveOutTheLeastProbableTokens) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(4.0f)};
  EXPECT_EQ(Counts(logits, {.temperature = 1, .top_k = 2}, 500).count(0), 0u);
  EXPECT_EQ(Counts(logits, {.temperature = 1, .top_k = 1}, 100)[1], 100);
  EXPECT_EQ(Counts(logits, {.temperature = 1, .top_p = 0.4}, 100)[1], 100) << "one token has more than 0.4";
  EXPECT_EQ(Counts(logits, {.temperature = 1, .top_p = 0.8}, 500).count(0), 0u);
  EXPECT_EQ(Counts(logits, {.temperature = 1, .top_p = 0.95}, 500).size(), 3u);
}

}  // namespace
}  // namespace cairn::worker

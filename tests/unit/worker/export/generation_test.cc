#include "worker/inputs/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/core/random.h"

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
  const absl::Status status = Generate(request, [&](int64_t token) { tokens.push_back(token); });
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

std::string RefusalOf(const GenerationRequest& request) {
  return std::string(Generate(request, [](int64_t) {}).message());
}

TEST(Generate, ThePromptMayBeShorterOrLongerThanTheWindow) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(Generated({.model = model, .parameters = kCycle, .prompt = {2}, .count = 5}),
              ElementsAre(3, 0, 1, 2, 3));
  EXPECT_THAT(Generated({.model = model, .parameters = kCycle, .prompt = {1, 1, 1, 1, 3}, .count = 2}),
              ElementsAre(0, 1));
}

TEST(Generate, OnlyTokensOfTheVocabularyAreDrawn) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(Generated({.model = model, .parameters = kCycle, .prompt = {1}, .count = 3, .vocabulary = 3}),
              ElementsAre(2, 0, 1))
      << "3 would come after 2; of equal scores the first is taken";
}

// A model that is not compiled does not say what its outputs are.
TEST(Generate, OutputsThatAddUpToOneAreProbabilities) {
  const nn::Model model = NextTokens();
  constexpr float kShares[] = {.1f, .7f, .1f, .1f, .1f, .1f, .7f, .1f,
                               .1f, .1f, .1f, .7f, .7f, .1f, .1f, .1f};
  GenerationRequest request = {
      .model = model, .parameters = kShares, .prompt = {0}, .count = 30, .sampling = {.temperature = 1}};
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
      .model = model, .parameters = kCycle, .prompt = {0}, .count = 20, .sampling = {.temperature = 5}};
  const std::vector<int64_t> first = Generated(request);
  EXPECT_EQ(Generated(request), first);
  request.sampling.seed = 1;
  EXPECT_NE(Generated(request), first);
}

TEST(Generate, OtherModelsAndPromptsAreRefused) {
  const nn::Model model = NextTokens();
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompt = {}, .count = 1}),
              HasSubstr("is empty"));
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompt = {1, 4}, .count = 1}),
              HasSubstr("token 1 of the prompt is 4, and the table of the model has ids from 0 to 3"));
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompt = {1}, .count = 1, .vocabulary = 5}),
              HasSubstr("the vocabulary has 5 tokens"));
  EXPECT_THAT(RefusalOf({.model = model, .parameters = kCycle, .prompt = {3}, .count = 1, .vocabulary = 3}),
              HasSubstr("token 0 of the prompt is 3, and the vocabulary has ids from 0 to 2"));
  const auto floats = nn::Model::FromJson(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3]}},
      {"class_name": "Dense", "config": {"name": "d", "units": 1}}]}})",
                                          "model.json");
  const std::vector<float> dense(4);
  EXPECT_THAT(RefusalOf({.model = *floats, .parameters = dense, .prompt = {1}, .count = 1}),
              HasSubstr("the model does not continue tokens"));
}

TEST(Generate, AModelThatReadsLaterTokensIsRefused) {
  const auto model = nn::Model::FromJson(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 3], "dtype": "int32"}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 4, "output_dim": 3}},
      {"class_name": "Permute", "config": {"name": "p", "dims": [2, 1]}}]}})",
                                         "model.json");
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_THAT(RefusalOf({.model = *model, .parameters = rows, .prompt = {1}, .count = 1}),
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

#include "nn/decoding/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/support/source_dir.h"
#include "tests/unit/nn/hub_models.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::HasSubstr;

class DecoderTest : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<kernels::Device> device_ =
      GetParam() == std::string("Cpu")
          ? kernels::CreateCpuDevice(0, 1).value()
          : kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value();

  // The outputs of whole windows: [examples, length, width].
  std::vector<float> Whole(const Model& model, absl::Span<const float> parameters, int64_t examples,
                           absl::Span<const float> values) {
    const ModelInputs inputs(model, examples, values);
    const Objective objective = Objective::ForAnyOutputs(model);
    const std::vector<float> targets(static_cast<size_t>(examples * objective.TargetsPerExample(model)));
    const auto replica = Replica::Create(model, objective, *device_);
    EXPECT_TRUE(replica.ok()) << replica.status();
    const BatchView batch = {.examples = examples, .inputs = inputs.views(), .targets = targets};
    const auto result = (*replica)->Evaluate(parameters, batch);
    EXPECT_TRUE(result.ok()) << result.status();
    return {result->outputs.begin(), result->outputs.end()};
  }

  // Appends steps [begin, end) of `ids` [batch, length].
  static std::vector<float> Append(Decoder& decoder, const std::vector<int32_t>& ids, int64_t batch,
                                   int64_t begin, int64_t end) {
    const auto length = static_cast<int64_t>(ids.size()) / batch;
    std::vector<int32_t> some;
    for (int64_t example = 0; example < batch; ++example) {
      const auto row = ids.begin() + example * length;
      some.insert(some.end(), row + begin, row + end);
    }
    const auto outputs =
        decoder.Append({.dtype = DType::kInt32, .shape = {batch, end - begin}, .data = some.data()});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return {outputs->begin(), outputs->end()};
  }

  // Row `step` of each example.
  static std::vector<float> StepOf(const std::vector<float>& whole, int64_t batch, int64_t length,
                                   int64_t step) {
    const int64_t width = static_cast<int64_t>(whole.size()) / batch / length;
    std::vector<float> rows;
    for (int64_t example = 0; example < batch; ++example) {
      const auto row = whole.begin() + (example * length + step) * width;
      rows.insert(rows.end(), row, row + width);
    }
    return rows;
  }

  static void ExpectNear(const std::vector<float>& values, const std::vector<float>& expected, double error) {
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], error * (1 + std::abs(expected[i]))) << i;
  }

  // Decodes `ids` with a first part of each length, and then one step at a time.
  static void CheckSteps(Decoder& decoder, const std::vector<TensorView>& inputs, int64_t batch,
                         const std::vector<int32_t>& ids, const std::vector<float>& whole, double error) {
    const auto length = static_cast<int64_t>(ids.size()) / batch;
    for (int64_t first = 1; first <= length; first += 1 + length / 7) {
      ASSERT_TRUE(decoder.Begin(inputs).ok());
      for (int64_t begin = 0, end = first; end <= length; begin = end++) {
        SCOPED_TRACE(testing::Message() << begin << " to " << end);
        ExpectNear(Append(decoder, ids, batch, begin, end), StepOf(whole, batch, length, end - 1), error);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, DecoderTest, testing::Values("Cpu", "Cuda"),
                         [](const auto& tested) { return std::string(tested.param); });

// Learned positions; rotated queries and keys in groups; and the frequencies of Llama 3.
TEST_P(DecoderTest, LogitsOfEachStepAreThoseOfKerasHub) {
  constexpr int64_t kBatch = 3, kLength = 5;
  int checked = 0;
  for (const nlohmann::json& recorded : RecordedModels()) {
    const auto name = recorded["name"].get<std::string>();
    if (name != "gpt2" && name != "llama" && name != "llama3") continue;
    SCOPED_TRACE(name);
    ++checked;
    const Model model = ModelOf(recorded).value();
    const std::vector<float> parameters = RecordedParameters(model);
    const DecodedInput inputs[] = {DecodedInput::kOnes, DecodedInput::kSteps};
    ASSERT_EQ(model.inputs()[1].name, "token_ids");
    const auto ids = recorded["inputs"]["token_ids"]["values"].get<std::vector<int32_t>>();
    const auto decoder = Decoder::Create(
        {.model = model, .parameters = parameters, .sequence = 1, .inputs = inputs, .batch = kBatch},
        *device_);
    ASSERT_TRUE(decoder.ok()) << decoder.status();

    // keras_hub's mask hides no step of the last example.
    const auto outputs = recorded["outputs"].get<std::vector<float>>();
    const size_t width = outputs.size() / kBatch / kLength;
    ASSERT_TRUE((*decoder)->Begin(std::vector<TensorView>(2)).ok());
    for (int64_t step = 0; step < kLength; ++step) {
      const std::vector<float> scores = Append(**decoder, ids, kBatch, step, step + 1);
      const auto expected = outputs.end() - (kLength - step) * static_cast<std::ptrdiff_t>(width);
      ExpectNear({scores.end() - static_cast<std::ptrdiff_t>(width), scores.end()},
                 {expected, expected + static_cast<std::ptrdiff_t>(width)}, 1e-5);
    }

    std::vector<float> values;  // [example, mask and ids]
    for (int64_t example = 0; example < kBatch; ++example) {
      values.insert(values.end(), kLength, 1.0f);
      values.insert(values.end(), ids.begin() + example * kLength, ids.begin() + (example + 1) * kLength);
    }
    CheckSteps(**decoder, std::vector<TensorView>(2), kBatch, ids, Whole(model, parameters, kBatch, values),
               1e-5);
  }
  EXPECT_EQ(checked, 3);
}

TEST_P(DecoderTest, TheBiasOfEachPositionIsThatOfItsStep) {
  constexpr int64_t kBatch = 2, kLength = 64;
  const Model model = Model::FromFile(InSource("deploy/examples/char_gpt.json")).value();
  std::vector<float> parameters = model.InitialParameters(1);
  for (size_t i = 0; i < parameters.size(); ++i)  // also those that begin with 0
    parameters[i] += static_cast<float>(static_cast<int>(i * 31 % 101) - 50) / 2000;
  std::vector<int32_t> ids(kBatch * kLength);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 61);
  const auto decoder = Decoder::Create({.model = model, .parameters = parameters, .batch = kBatch}, *device_);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  EXPECT_FALSE((*decoder)->masks_zero());
  CheckSteps(**decoder, std::vector<TensorView>(1), kBatch, ids,
             Whole(model, parameters, kBatch, std::vector<float>(ids.begin(), ids.end())), 1e-5);

  // No more steps than the model has positions.
  const int32_t id = 1;
  const auto refused = (*decoder)->Append({.dtype = DType::kInt32, .shape = {1, 1}, .data = &id});
  EXPECT_EQ(refused.status().message(), "cannot append 1 steps to 64 of at most 64");
}

// A layer in each of the forms that is computed alone for each step, and both encodings of positions.
constexpr char kManyLayers[] = R"({"class_name": "Functional", "config": {"layers": [
    {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, 6], "dtype": "int32"}},
    {"class_name": "Embedding", "config": {"name": "words", "input_dim": 9, "output_dim": 4},
     "inbound_nodes": [{"args": ["ids"]}]},
    {"class_name": "SinePositionEncoding", "config": {"name": "places"}, "inbound_nodes": [{"args": ["words"]}]},
    {"class_name": "Add", "config": {"name": "sum"}, "inbound_nodes": [{"args": [["words", "places"]]}]},
    {"class_name": "Dropout", "config": {"name": "dropout", "rate": 0.5}, "inbound_nodes": [{"args": ["sum"]}]},
    {"class_name": "RotaryEmbedding", "config": {"name": "rotary"}, "inbound_nodes": [{"args": ["dropout"]}]},
    {"class_name": "RMSNormalization", "config": {"name": "rms"}, "inbound_nodes": [{"args": ["rotary"]}]},
    {"class_name": "BatchNormalization", "config": {"name": "batch"}, "inbound_nodes": [{"args": ["rms"]}]},
    {"class_name": "TimeDistributed", "config": {"name": "times", "layer":
      {"class_name": "Dense", "config": {"name": "inner", "units": 4}}}, "inbound_nodes": [{"args": ["batch"]}]},
    {"class_name": "GroupQueryAttention", "config": {"name": "attention", "num_query_heads": 4,
      "num_key_value_heads": 2, "head_dim": 3},
     "inbound_nodes": [{"args": ["times", "sum"], "kwargs": {"use_causal_mask": true}}]},
    {"class_name": "Attention", "config": {"name": "plain", "use_scale": true},
     "inbound_nodes": [{"args": [["times", "sum", "attention"]], "kwargs": {"use_causal_mask": true}}]},
    {"class_name": "Concatenate", "config": {"name": "both"}, "inbound_nodes": [{"args": [["times", "plain"]]}]},
    {"class_name": "LeakyReLU", "config": {"name": "leaky"}, "inbound_nodes": [{"args": ["both"]}]},
    {"class_name": "Rescaling", "config": {"name": "scaled", "scale": 3}, "inbound_nodes": [{"args": ["leaky"]}]},
    {"class_name": "Dense", "config": {"name": "scores", "units": 9, "activation": "softmax"},
     "inbound_nodes": [{"args": ["scaled"]}]}],
  "input_layers": ["ids"], "output_layers": ["scores"]}})";

TEST_P(DecoderTest, LayersThatComputeStepsAloneAreDecoded) {
  const auto model = Model::FromJson(kManyLayers, "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<float> parameters = model->InitialParameters(2);
  const std::vector<int32_t> ids = {1, 8, 3, 0, 7, 2};
  const auto decoder = Decoder::Create({.model = *model, .parameters = parameters}, *device_);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  CheckSteps(**decoder, std::vector<TensorView>(1), 1, ids, Whole(*model, parameters, 1, {1, 8, 3, 0, 7, 2}),
             1e-5);
}

TEST_P(DecoderTest, ASequenceMayGoOnFromAnother) {
  const Model model = Model::FromJson(kManyLayers, "m").value();
  const std::vector<float> parameters = model.InitialParameters(2);
  const auto decoder =
      Decoder::Create({.model = model, .parameters = parameters, .batch = 2}, *device_).value();
  const std::vector<int32_t> ids = {1, 8, 3, 4, 4, 6};
  ASSERT_TRUE(decoder->Begin(std::vector<TensorView>(1)).ok());
  Append(*decoder, ids, 2, 0, 2);
  ASSERT_TRUE(decoder->Reorder({1, 0}).ok());
  const std::vector<float> whole = Whole(model, parameters, 2, {4, 4, 3, 0, 0, 0, 1, 8, 6, 0, 0, 0});
  ExpectNear(Append(*decoder, ids, 2, 2, 3), StepOf(whole, 2, 6, 2), 1e-5);
  ASSERT_TRUE(decoder->Reorder({1, 1}).ok());
  const std::vector<float> same = Append(*decoder, {5, 5}, 2, 0, 1);
  ExpectNear({same.begin(), same.begin() + 9}, {same.begin() + 9, same.end()}, 1e-6);
}

// `second` reads "words" [3, 4], the embeddings of the ids.
std::string WithLayer(absl::string_view second) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"layers": [
      {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, 3], "dtype": "int32"}},
      {"class_name": "Embedding", "config": {"name": "words", "input_dim": 9, "output_dim": 4},
       "inbound_nodes": [{"args": ["ids"]}]}, {"config": {"name": "second")",
                      second, R"(}], "input_layers": ["ids"], "output_layers": ["second"]}})");
}

TEST_P(DecoderTest, LayersThatMixStepsAreRefusedByName) {
  for (
      const char* layer :
      {R"(, "units": 4, "return_sequences": true}, "class_name": "LSTM", "inbound_nodes": [{"args": ["words"]}])",
       R"(, "filters": 4, "kernel_size": 2, "padding": "same"}, "class_name": "Conv1D",
            "inbound_nodes": [{"args": ["words"]}])",
       R"(, "axis": [1, 2]}, "class_name": "LayerNormalization", "inbound_nodes": [{"args": ["words"]}])",
       R"(, "axis": 1}, "class_name": "BatchNormalization", "inbound_nodes": [{"args": ["words"]}])",
       R"(, "target_shape": [3, 4]}, "class_name": "Reshape", "inbound_nodes": [{"args": ["words"]}])",
       R"(, "num_heads": 1, "key_dim": 4}, "class_name": "MultiHeadAttention",
            "inbound_nodes": [{"args": ["words", "words"]}])",
       R"(, "num_query_heads": 1, "num_key_value_heads": 1, "head_dim": 4}, "class_name": "GroupQueryAttention",
            "inbound_nodes": [{"args": ["words", "words"], "kwargs": {"use_causal_mask": true,
                               "query_mask": "ids"}}])"}) {
    const auto model = Model::FromJson(WithLayer(layer), "m");
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<float> parameters = model->InitialParameters(1);
    const absl::Status status =
        Decoder::Create({.model = *model, .parameters = parameters}, *device_).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << layer << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("layer 'second'"));
  }
}

}  // namespace
}  // namespace cairn::nn

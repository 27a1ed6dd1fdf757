// Files written by Keras, and Keras' outputs for them: see tests/support/data/keras_weights/make.py.
#include "worker/export/keras_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/core/files.h"
#include "data/array/array_file.h"
#include "data/array/array_rows.h"
#include "data/file/byte_reader.h"
#include "tests/support/source_dir.h"
#include "worker/export/hdf5_file.h"
#include "worker/export/weights.h"
#include "worker/inputs/prediction.h"

namespace cairn::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Data(absl::string_view name) {
  return InSource(absl::StrCat("tests/support/data/keras_weights/", name));
}

// Skips, with a message, if the build cannot read HDF5.
class KerasWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(Hdf5File::Open(data::SharedBytes()).status()))
      GTEST_SKIP() << "this build has no libhdf5";
  }
};

nn::Model ModelOf(absl::string_view layers) {
  return *nn::Model::FromJson(absl::StrCat(R"({"config": {"layers": [)", layers, "]}}"), "model.json");
}

constexpr char kSteps[] = R"(
    {"class_name": "InputLayer", "config": {"batch_shape": [null, 7], "dtype": "int32"}},
    {"class_name": "Embedding", "config": {"input_dim": 10, "output_dim": 4, "name": "NAME"}},
    {"class_name": "Conv1D", "config": {"filters": 4, "kernel_size": 3}}, {"class_name": "Flatten"},
    {"class_name": "Dense", "config": {"units": 3, "activation": "tanh"}},
    {"class_name": "Dense", "config": {"units": 2}})";
constexpr char kDense[] = R"(
    {"class_name": "Dense", "config": {"name": "first", "units": 2, "input_shape": [2]}},
    {"class_name": "Dense", "config": {"name": "second", "units": 1}})";

// The network's outputs for IN_inputs.npy equal Keras' outputs in OUT_outputs.npy.
void ExpectKerasOutputs(absl::string_view in, absl::string_view out, const nn::Model& model,
                        const std::vector<float>& parameters) {
  const std::string path = Data(absl::StrCat(in, "_inputs.npy"));
  const auto inputs = data::MakeArrayRows(*data::ReadArrayFile(path), path, 1.0);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  const auto prediction = Predict({.model = model, .parameters = parameters, .inputs = **inputs});
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  const auto outputs = data::ReadArrayFile(Data(absl::StrCat(out, "_outputs.npy")));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->shape, Shape({prediction->examples, model.output_shape()[0]}));
  for (size_t i = 0; i < prediction->outputs.size(); ++i) {
    // The tolerance covers float32 sums in another order, through a dozen layers.
    const float expected = data::ElementAt<float>(outputs->bytes.data(), static_cast<int64_t>(i));
    EXPECT_NEAR(prediction->outputs[i], expected, 1e-5 * (1 + std::abs(expected)));
  }
}

void ExpectKerasOutputs(absl::string_view name, const nn::Model& model,
                        const std::vector<float>& parameters) {
  ExpectKerasOutputs(name, name, model, parameters);
}

std::string FaultOf(const std::string& path, const nn::Model& model) {
  const auto values = LoadWeights(path, model);
  EXPECT_TRUE(absl::IsInvalidArgument(values.status())) << values.status();
  return std::string(values.status().message());
}

TEST_F(KerasWeights, ArchiveGivesModelAndValuesThatScoreAsInKeras) {
  const auto trained = LoadTrainedModel(Data("image.keras"), "");
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_FALSE(trained->global_step.has_value());
  ExpectKerasOutputs("image", trained->model, trained->parameters);
}

TEST_F(KerasWeights, AModelWithoutWeightsMayHaveAnOptimizer) {
  const auto model = nn::Model::FromJson(
      R"({"config": {"layers": [{"class_name": "Softmax", "config": {"input_shape": [4]}}]}})", "model.json");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto parameters = LoadKerasWeights(Data("only_optimizer.keras"), *model);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  EXPECT_THAT(*parameters, IsEmpty());
}

TEST_F(KerasWeights, Keras2FormatHasTheSameValues) {
  const auto trained = LoadTrainedModel(Data("image.h5"), Data("image.keras"));
  ASSERT_TRUE(trained.ok()) << trained.status();
  ExpectKerasOutputs("image", trained->model, trained->parameters);
}

// The names of its layers contain slashes.
TEST_F(KerasWeights, WholeKeras2ModelScoresAsInKeras) {
  for (const char* name : {"keras2.h5", "keras2.keras"}) {
    SCOPED_TRACE(name);
    const auto trained = LoadTrainedModel(Data(name), "");
    ASSERT_TRUE(trained.ok()) << trained.status();
    ExpectKerasOutputs("keras2", trained->model, trained->parameters);
  }
}

TEST_F(KerasWeights, AdaptedStatisticsAndMergesThatBroadcastScoreAsInKeras) {
  const auto trained = LoadTrainedModel(Data("excite.keras"), "");
  ASSERT_TRUE(trained.ok()) << trained.status();
  ExpectKerasOutputs("excite", trained->model, trained->parameters);
}

// Their weights are in groups below those of the layers.
TEST_F(KerasWeights, RecurrentAndWrappedLayersScoreAsInKeras) {
  for (const char* name : {"recurrent.keras", "recurrent.h5"}) {
    SCOPED_TRACE(name);
    const auto trained = LoadTrainedModel(Data(name), Data("recurrent.keras"));
    ASSERT_TRUE(trained.ok()) << trained.status();
    ExpectKerasOutputs("recurrent", trained->model, trained->parameters);
  }
}

// Models within the model, one of which is called twice. The archive leaves the size of the images open.
TEST_F(KerasWeights, NestedModelsScoreAsInKeras) {
  const nn::InputSizes sizes = {.given = {{"image", {7, 6, 3}}}};
  for (const auto& [file, outputs] :
       {std::pair{"nested.keras", "nested"}, {"nested.h5", "nested"}, {"nested2.h5", "nested2"}}) {
    SCOPED_TRACE(file);
    const auto trained = LoadTrainedModel(Data(file), "", sizes);
    ASSERT_TRUE(trained.ok()) << trained.status();
    ExpectKerasOutputs("nested", outputs, trained->model, trained->parameters);
  }
}

// A model of keras_hub, whose layers have their weights in groups named by attributes. The values are those of
// tests/support/data/keras_hub/make.py.
TEST_F(KerasWeights, AModelOfKerasHubHasItsValues) {
  const nn::InputSizes sizes = {.given = {{"padding_mask", {5}}, {"token_ids", {5}}}};
  const auto trained = LoadTrainedModel(InSource("tests/support/data/keras_hub/gpt2.keras"), "", sizes);
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_EQ(trained->model.variables().size(), 36u);
  for (const nn::ModelVariable& variable : trained->model.variables()) {
    const std::string name = absl::StrReplaceAll(variable.name, {{"gpt2_backbone/", ""}});
    const auto salt = std::accumulate(name.begin(), name.end(), int64_t{0});
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
      const double value = static_cast<double>((i * i * 31 + i * 17 + salt) % 101 - 50) / 100;
      ASSERT_FLOAT_EQ(trained->parameters[static_cast<size_t>(variable.offset + i)],
                      static_cast<float>(value + (absl::EndsWith(name, "gamma") ? 1 : 0)))
          << variable.name << " " << i;
    }
  }
}

// If four bytes are overwritten anywhere, the values stay the same or the file is refused.
TEST_F(KerasWeights, DamagedArchiveGivesNoWrongValues) {
  const auto whole = data::ReadFileBytes(Data("keras2.keras"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto undamaged = LoadTrainedModel(Data("keras2.keras"), "");
  ASSERT_TRUE(undamaged.ok()) << undamaged.status();
  const std::string path = ::testing::TempDir() + "/keras_weights_test_damaged.keras";
  int refused = 0;
  for (size_t at = 0; at + 4 < whole->size(); at += 41) {
    std::string bytes(whole->begin(), whole->end());
    for (size_t i = at; i < at + 4; ++i) bytes[i] = static_cast<char>(~bytes[i]);
    ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
    const auto trained = LoadTrainedModel(path, "");
    refused += !trained.ok();
    if (!trained.ok()) continue;
    EXPECT_EQ(trained->parameters, undamaged->parameters) << "bytes from " << at;
    EXPECT_EQ(trained->model.canonical_json(), undamaged->model.canonical_json()) << "bytes from " << at;
  }
  EXPECT_GT(refused, 30);
}

TEST_F(KerasWeights, ChecksumInAnHdf5FileIsVerified) {
  const nn::Model model =
      ModelOf(R"({"class_name": "Dense", "config": {"name": "dense", "units": 2, "input_shape": [2]}})");
  const auto values = LoadWeights(Data("checked.weights.h5"), model);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(1, 2, 3, 4, 0, 1));
  const auto whole = data::ReadFileBytes(Data("checked.weights.h5"));
  std::string bytes(whole->begin(), whole->end());
  const std::string kernel("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16);  // 1, 2, 3, 4
  const size_t at = bytes.find(kernel);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 4] = 1;
  const std::string path = ::testing::TempDir() + "/keras_weights_test_checked.h5";
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_THAT(FaultOf(path, model), StartsWith(path + ": layers/dense/vars/0: its values: "));
}

TEST_F(KerasWeights, LayersWithOtherNamesAreFoundByClassAndOrder) {
  const nn::Model model = ModelOf(absl::StrReplaceAll(kSteps, {{"NAME", "table"}}));
  const auto values = LoadWeights(Data("steps.weights.h5"), model);
  ASSERT_TRUE(values.ok()) << values.status();
  ExpectKerasOutputs("steps", model, *values);
}

TEST_F(KerasWeights, LayersOfNestedModelsAreFoundByName) {
  const auto values = LoadWeights(Data("dense.weights.h5"), ModelOf(kDense));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(0, 1, 2, 3, 10, 11, 20, 21, 30));
}

TEST_F(KerasWeights, NamesTakePrecedenceOverOrder) {
  const nn::Model turned = ModelOf(R"(
      {"class_name": "Dense", "config": {"name": "second", "units": 1, "input_shape": [2]}},
      {"class_name": "Reshape", "config": {"target_shape": [1]}},
      {"class_name": "Dense", "config": {"name": "first", "units": 2}})");
  EXPECT_THAT(FaultOf(Data("dense.weights.h5"), turned),
              EndsWith("layer 'first' (layers/dense) has 0 [2,2], 1 [2]; in the model it has kernel [1,2], "
                       "bias [2]"));
}

TEST_F(KerasWeights, MissingUnknownAndMisshapenLayersAreNamed) {
  const std::string path = Data("dense.weights.h5");
  const auto fault = [&](absl::string_view layers) { return FaultOf(path, ModelOf(layers)); };
  EXPECT_EQ(
      fault(absl::StrCat(kDense, R"(, {"class_name": "Dense", "config": {"name": "third", "units": 1}})")),
      absl::StrCat(path, ": has no layer 'third'; it has first, second"));
  EXPECT_EQ(fault(R"({"class_name": "Dense", "config": {"name": "first", "units": 2, "input_shape": [2]}})"),
            absl::StrCat(path, ": layer 'second' (layers/sequential/layers/dense) is not in the model"));
  EXPECT_EQ(fault(absl::StrReplaceAll(kDense, {{R"("units": 2)", R"("units": 2, "use_bias": false)"}})),
            absl::StrCat(
                path, ": layer 'first' (layers/dense) has 0 [2,2], 1 [2]; in the model it has kernel [2,2]"));
  // In Keras 2's format weights have names.
  EXPECT_THAT(FaultOf(Data("image.h5"), ModelOf(kDense)),
              AllOf(StartsWith(Data("image.h5: has no layer 'first'; it has ")), HasSubstr("hidden")));
}

TEST_F(KerasWeights, OtherFilesAreRefusedNamingThem) {
  const nn::Model model = ModelOf(kDense);
  EXPECT_TRUE(absl::IsNotFound(LoadWeights(Data("none.keras"), model).status()));
  const std::string nothing = ::testing::TempDir() + "/keras_weights_test.h5";
  ASSERT_TRUE(WriteFileAtomically(nothing, "not what HDF5 begins with").ok());
  EXPECT_EQ(FaultOf(nothing, model), nothing + ": is not readable HDF5");
  EXPECT_THAT(FaultOf(InSource("tests/support/data/keras316_mnist_cnn.keras"), model),
              HasSubstr("keras316_mnist_cnn.keras: has no model.weights.h5"));
}

// Any truncation or change gives values or an error that names the file, and no output on stderr.
TEST_F(KerasWeights, DamagedFileIsRefusedWithoutOutputOnStderr) {
  const auto whole = data::ReadFileBytes(Data("dense.weights.h5"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const nn::Model model = ModelOf(kDense);
  const std::string path = ::testing::TempDir() + "/keras_weights_test_damaged.h5";
  const auto fault_of = [&](const std::string& bytes) {
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    const auto values = LoadWeights(path, model);
    return std::string(values.ok() ? path : values.status().message());
  };
  ::testing::internal::CaptureStderr();
  for (size_t end = 0; end < whole->size(); end += 1009) {
    EXPECT_THAT(fault_of(std::string(whole->begin(), whole->begin() + static_cast<long>(end))),
                StartsWith(path + ": "));
  }
  for (size_t at = 0; at < whole->size(); at += 601) {
    std::string bytes(whole->begin(), whole->end());
    bytes.replace(at, 8, 8, '\xff');
    EXPECT_THAT(fault_of(bytes), StartsWith(path));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace cairn::worker

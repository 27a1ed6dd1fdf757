#include "nn/replace_embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/host_tables.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LossSpec kFromLogits = {.from_logits = true};

std::vector<std::string> InputNames(const Model& model) {
  std::vector<std::string> names;
  for (const ModelInput& input : model.inputs()) names.push_back(input.name);
  return names;
}

absl::Status ErrorOf(const std::string& json, const std::vector<std::string>& layers) {
  const auto model = Model::FromJson(json, "m");
  EXPECT_TRUE(model.ok()) << model.status();
  const absl::Status status = ReplaceEmbeddings(*model, layers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return status;
}

TEST(ReplaceEmbeddings, EveryCallOfEveryTableBecomesAnInput) {
  const Model model = Model::FromJson(Recommender(), "m").value();
  EXPECT_THAT(EmbeddingLayers(model), ElementsAre("users", "items", "tags"));
  const ModelWithoutTables made = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  EXPECT_THAT(InputNames(made.model), ElementsAre("numbers", "unused", "users", "items", "items:1", "tags"));
  EXPECT_THAT(made.kept_inputs, ElementsAre(0, 2));
  EXPECT_EQ(LayerNames(made.model).size(), LayerNames(model).size() - 6)
      << "4 calls, a Reshape of ids, a mean of rows";
  EXPECT_THAT(LayerNames(made.model), ElementsAre("user_row", "seen_rows", "seen_mean", "item_row", "bottom",
                                                  "match", "all", "hidden", "scores"));
  EXPECT_THAT(VariableNames(made.model), ElementsAre("bottom/kernel", "bottom/bias", "hidden/kernel",
                                                     "hidden/bias", "scores/kernel", "scores/bias"));
  for (size_t i = 0; i < made.model.inputs().size(); ++i) {
    EXPECT_EQ(made.model.inputs()[i].dtype, DType::kFloat32);
    EXPECT_EQ(made.model.inputs()[i].needs_gradient, i >= 2);
    EXPECT_FALSE(made.model.inputs()[i].ragged);
  }
  EXPECT_EQ(made.model.inputs()[2].shape, Shape({1, 3}));
  EXPECT_EQ(made.model.inputs()[3].shape, Shape({2, 2, 3}));
  EXPECT_EQ(made.model.inputs()[4].shape, Shape({1, 3}));
  EXPECT_EQ(made.model.inputs()[5].shape, Shape({3})) << "the mean is replaced with its table";
  EXPECT_EQ(made.model.num_parameters(), model.num_parameters() - (5 + 7 + 6) * 3);
  EXPECT_EQ(made.model.canonical_json(), model.canonical_json());
}

TEST(ReplaceEmbeddings, ThePenaltyOfATableStaysInTheModel) {
  const Model model = Model::FromJson(SequentialOf(R"(
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2, "input_shape": [3],
                                             "activity_regularizer": "l2"}},
      {"class_name": "Flatten"}, {"class_name": "Dense", "config": {"units": 1}})"),
                                      "m")
                          .value();
  const ModelWithoutTables made = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  ASSERT_EQ(made.lookups.size(), 1u);
  EXPECT_EQ(LayerNames(made.model).front(), "e") << "the penalty reads the rows";
}

TEST(ReplaceEmbeddings, ALookupSaysWhereItsIdsAreAndWhatItsTableIs) {
  const Model model = Model::FromJson(Recommender(), "m").value();
  const ModelWithoutTables made = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  ASSERT_EQ(made.lookups.size(), 4u);
  const auto describe = [](const TableLookup& lookup) {
    return absl::StrCat(lookup.layer, " [", lookup.rows, ",", lookup.width, "] ids ", lookup.ids, " input ",
                        lookup.input, " of ", lookup.ids_per_example,
                        lookup.ids_per_example == 0 ? " mean" : "");
  };
  EXPECT_EQ(describe(made.lookups[0]), "users [5,3] ids 1 input 2 of 1");
  EXPECT_EQ(describe(made.lookups[1]), "items [7,3] ids 3 input 3 of 4");
  EXPECT_EQ(describe(made.lookups[2]), "items [7,3] ids 4 input 4 of 1");
  EXPECT_EQ(describe(made.lookups[3]), "tags [6,3] ids 5 input 5 of 0 mean");
  EXPECT_EQ(made.lookups[0].initializer.distribution, InitializerSpec::Distribution::kUniform);
}

TEST(ReplaceEmbeddings, OtherVariablesKeepTheirFirstValues) {
  const Model model = Model::FromJson(Recommender(), "m").value();
  const ModelWithoutTables made = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  const std::vector<float> before = model.InitialParameters(7), after = made.model.InitialParameters(7);
  for (const ModelVariable& variable : made.model.variables()) {
    const auto found = std::find_if(model.variables().begin(), model.variables().end(),
                                    [&](const ModelVariable& other) { return other.name == variable.name; });
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
      EXPECT_EQ(after[static_cast<size_t>(variable.offset + i)],
                before[static_cast<size_t>(found->offset + i)]);
    }
  }
}

TEST(ReplaceEmbeddings, OtherTablesStayInTheModel) {
  const Model model = Model::FromJson(Recommender(), "m").value();
  const ModelWithoutTables made = ReplaceEmbeddings(model, std::vector<std::string>{"items"}).value();
  EXPECT_THAT(InputNames(made.model), ElementsAre("numbers", "user", "unused", "tag", "items", "items:1"));
  EXPECT_THAT(VariableNames(made.model),
              ElementsAre("users/embeddings", "tags/embeddings", "bottom/kernel", "bottom/bias",
                          "hidden/kernel", "hidden/bias", "scores/kernel", "scores/bias"));
  EXPECT_EQ(made.model.inputs()[1].dtype, DType::kInt64);
  EXPECT_TRUE(made.model.inputs()[3].ragged);
  const ModelWithoutTables none = ReplaceEmbeddings(model, {}).value();
  EXPECT_EQ(LayerNames(none.model), LayerNames(model));
  EXPECT_EQ(InputNames(none.model), InputNames(model));
  EXPECT_THAT(none.lookups, IsEmpty());
}

TEST(ReplaceEmbeddings, SequentialModelsToo) {
  const Model model = Model::FromJson(SequentialOf(R"(
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2, "input_shape": [4]}},
      {"class_name": "Flatten", "config": {"name": "f"}},
      {"class_name": "Dense", "config": {"name": "d", "units": 2}})"),
                                      "m")
                          .value();
  const ModelWithoutTables made = ReplaceEmbeddings(model, std::vector<std::string>{"e"}).value();
  EXPECT_THAT(InputNames(made.model), ElementsAre("e"));
  EXPECT_EQ(made.model.input_shape(), Shape({4, 2}));
  EXPECT_THAT(made.kept_inputs, IsEmpty());
  EXPECT_FALSE(made.model.functional());
}

TEST(ReplaceEmbeddings, AMeanThatKeepsItsStepOrEndsTheModelStays) {
  for (const char* config : {R"("keepdims": true)", ""}) {
    std::string json =
        absl::StrCat(R"({"config": {"layers": [
        {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, null], "ragged": true}},
        {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}},
        {"class_name": "GlobalAveragePooling1D", "config": {)",
                     config, R"(}})", *config == '\0' ? "" : R"(, {"class_name": "Flatten"})", "]}}");
    const Model model = Model::FromJson(json, "m").value();
    const ModelWithoutTables made = ReplaceEmbeddings(model, std::vector<std::string>{"e"}).value();
    EXPECT_EQ(made.model.input_shape(), Shape({1, 2}));
    EXPECT_EQ(made.model.nodes()[0].layer->class_name(), "GlobalAveragePooling1D");
    EXPECT_TRUE(made.lookups[0].ids_per_example == 0);
  }
}

TEST(ReplaceEmbeddings, LayersThatCannotBeReplacedAreNamed) {
  EXPECT_EQ(ErrorOf(Recommender(), {"users", "people"}).message(),
            "the model has no layer 'people'; Embedding layers: users, items, tags");
  EXPECT_EQ(ErrorOf(Recommender(), {"hidden"}).message(),
            "layer 'hidden' (Dense) has no embedding table; Embedding layers: users, items, tags");
  EXPECT_EQ(
      ErrorOf(
          SequentialOf(R"({"class_name": "Dense", "config": {"name": "d", "units": 2, "input_shape": [3]}})"),
          {"e"})
          .message(),
      "the model has no layer 'e'; Embedding layers: none");
  EXPECT_EQ(
      ErrorOf(Recommender(R"(, "embeddings_regularizer": "l2")"), {"users"}).message(),
      "layer 'users' (Embedding): embeddings_regularizer is not supported for a table outside the model");
  EXPECT_EQ(
      ErrorOf(Recommender(R"(, "embeddings_constraint": "non_neg")"), {"users"}).message(),
      "layer 'users' (Embedding): embeddings_constraint is not supported for a table outside the model");
  EXPECT_EQ(
      ErrorOf(Recommender(R"(, "trainable": false)"), {"users"}).message(),
      "layer 'users' (Embedding): trainable is false, which is not supported for a table outside the model");
  const std::string chain = R"(
      {"class_name": "Rescaling", "config": {"name": "r", "scale": 2, "input_shape": [4]}},
      {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2}})";
  EXPECT_EQ(ErrorOf(SequentialOf(chain), {"e"}).message(),
            "layer 'e' (Embedding): reads the output of layer 'r' (Rescaling), but the ids of a table on "
            "the servers must be an input of the model");
  EXPECT_EQ(
      ErrorOf(SequentialOf(R"({"class_name": "Embedding", "config": {"name": "e", "input_dim": 9,
                                      "output_dim": 2, "input_shape": [4]}})"),
              {"e"})
          .message(),
      "layer 'e' (Embedding): makes the model's output, and a model needs a layer behind a table outside the "
      "model");
}

class Trained : public testing::Test {
 protected:
  const Model model_ = Model::FromJson(Recommender(), "m").value();
  const ModelWithoutTables without_ = ReplaceEmbeddings(model_, EmbeddingLayers(model_)).value();
  const std::unique_ptr<kernels::Device> cpu_ = kernels::CreateCpuDevice(0, 1).value();
  std::unique_ptr<Replica> On(kernels::Device& device) {
    return Replica::Create(without_.model, kFromLogits, device).value();
  }
};

TEST_F(Trained, OnACpuEveryStepHasTheBitsOfTheModelWithItsTables) {
  const std::unique_ptr<Replica> original = Replica::Create(model_, kFromLogits, *cpu_).value(),
                                 replica = On(*cpu_);
  HostTables tables(model_, without_);
  std::vector<float> parameters = model_.InitialParameters(1);
  for (const int64_t count : {6, 6, 5, 1, 6}) {
    const IdExamples examples(model_, count);
    const HostTables::Step step = tables.Run(*replica, examples.Weighted());
    EXPECT_EQ(step.gradients, GradientsOf(model_, *original, parameters, examples.Weighted()));
    EXPECT_EQ(step.result.sums.loss, original->Evaluate(parameters, examples.Weighted())->sums.loss);
    tables.Descend(step);
    for (const ModelVariable& variable : model_.variables()) {
      const std::vector<float>& gradient = step.gradients.at(variable.name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        parameters[static_cast<size_t>(variable.offset) + i] -= 0.5f * gradient[i];
      }
    }
  }
  EXPECT_EQ(tables.tables()["users"], std::vector<float>(parameters.begin(), parameters.begin() + 15));
}

TEST_F(Trained, TheGradientOfARowIsThatOfTheLoss) {
  const std::unique_ptr<Replica> replica = On(*cpu_);
  HostTables tables(model_, without_);
  const IdExamples examples(model_, 4);
  tables.Run(*replica, examples.Batch());
  const std::vector<std::vector<float>> gradients = tables.input_gradients();
  const BatchView batch = tables.Lookup(examples.Batch());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const TensorView& input = batch.inputs[without_.kept_inputs.size() + i];
    auto* const values = const_cast<float*>(input.floats().data());
    for (size_t element = 0; element < gradients[i].size(); ++element) {
      constexpr float kStep = 1e-2f;
      const auto loss = [&](float change) {
        const float before = values[element];
        values[element] += change;
        const double sum = replica->Evaluate(tables.parameters(), batch)->sums.loss;
        values[element] = before;
        return sum / 4;
      };
      EXPECT_NEAR(gradients[i][element], (loss(kStep) - loss(-kStep)) / (2 * kStep), 2e-4)
          << without_.lookups[i].layer << " " << element;
    }
  }
}

struct Precise {
  kernels::Precision precision;
  float tolerance;
};
class TrainedOnCuda : public Trained, public testing::WithParamInterface<Precise> {};

TEST_P(TrainedOnCuda, EveryStepIsThatOfACpuButForRounding) {
  const auto cuda = kernels::cuda::CreateDevice({.precision = GetParam().precision}).value();
  const std::unique_ptr<Replica> expected = On(*cpu_), replica = On(*cuda);
  HostTables tables(model_, without_), on_cpu(model_, without_);
  for (const int64_t count : {6, 6, 6, 1}) {  // recorded at the second step, repeated at the third
    const IdExamples examples(model_, count);
    const HostTables::Step step = tables.Run(*replica, examples.Batch());
    const HostTables::Step of_cpu = on_cpu.Run(*expected, examples.Batch());
    for (const auto& [name, gradient] : of_cpu.gradients) {
      const std::vector<float>& got = step.gradients.at(name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_NEAR(got[i], gradient[i], GetParam().tolerance) << name << " " << i;
      }
    }
    tables.Descend(step);
    on_cpu.Descend(of_cpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, TrainedOnCuda,
                         testing::Values(Precise{kernels::Precision::kFloat32, 1e-6f},
                                         Precise{kernels::Precision::kBFloat16, 1e-2f},
                                         Precise{kernels::Precision::kFloat16, 1e-3f}));

}  // namespace
}  // namespace cairn::nn

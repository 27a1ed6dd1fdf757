// Gradients with respect to inputs, on one device and several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "nn/pipeline/pipeline_replica.h"
#include "nn/replace_embeddings.h"
#include "nn/replica/mirrored_replica.h"
#include "tests/support/fake_device_group.h"
#include "tests/unit/nn/host_tables.h"
#include "tests/unit/nn/several_devices.h"

namespace cairn::nn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputGradientsTest : public testing::Test {
 protected:
  void ExpectTheStepsOfOneDevice(Replica& replica, float tolerance) {
    const std::unique_ptr<Replica> alone = Replica::Create(without_.model, kLogits, *cpu_).value();
    HostTables expected(model_, without_), tables(model_, without_);
    for (const int64_t count : {8, 7, 8, 2, 1}) {
      SCOPED_TRACE(count);
      const IdExamples examples(model_, count);
      const HostTables::Step step = tables.Run(replica, examples.Weighted());
      const HostTables::Step of_one = expected.Run(*alone, examples.Weighted());
      for (const auto& [name, gradient] : of_one.gradients) {
        ExpectNear(step.gradients.at(name), gradient, tolerance, name.c_str());
      }
      for (size_t i = 0; i < expected.input_gradients().size(); ++i) {
        ExpectNear(tables.input_gradients()[i], expected.input_gradients()[i], tolerance, "row");
      }
      tables.Descend(step);
      expected.Descend(of_one);
    }
  }
  // The stages end behind the nodes with these names.
  Pipeline::Options Divided(const Devices& devices, const std::string& first_of_second) {
    int device = 0;
    device_of_.clear();
    for (const Node& node : without_.model.nodes()) {
      if (node.layer->name() == first_of_second) device = 1;
      device_of_.push_back(device);
    }
    return {.model = without_.model,
            .objective = kLogits,
            .threads = devices.pointers(),
            .locations = PipelineLocations::OfDevices(device_of_),
            .micro_batches = 3};
  }

  const Model model_ = Model::FromJson(Recommender(), "m").value();
  const ModelWithoutTables without_ = ReplaceEmbeddings(model_, EmbeddingLayers(model_)).value();
  const std::unique_ptr<kernels::Device> cpu_ = kernels::CreateCpuDevice(0, 1).value();
  std::vector<int> device_of_;
};

TEST_F(InputGradientsTest, AreHandedOutBeforeLayersThatDoNotMatterToThem) {
  kernels::FarDevice far;
  for (kernels::Device* const device : {cpu_.get(), static_cast<kernels::Device*>(&far)}) {
    const std::unique_ptr<Replica> replica = Replica::Create(without_.model, kLogits, *device).value();
    HostTables tables(model_, without_);
    const HostTables::Step step = tables.Run(*replica, IdExamples(model_, 4).Batch());
    // Inputs -5 and -6, "items:1" and "tags", are read by "all" alone, -3, "users", also by "match". Only -4,
    // "items", has a mean behind it, which comes before "bottom" (variables 0 and 1) in the model.
    EXPECT_THAT(step.announced, ElementsAre(4, 5, 2, 3, -5, -6, -3, 0, 1, -4));
  }
}

TEST_F(InputGradientsTest, AFarDeviceGivesTheBitsOfACpu) {
  kernels::FarDevice far;
  ExpectTheStepsOfOneDevice(*Replica::Create(without_.model, kLogits, far).value(), 0);
}

TEST_F(InputGradientsTest, InputsThatNeedGradientsReachADeviceThroughPinnedMemory) {
  kernels::FarDevice far;
  const std::unique_ptr<Replica> replica = Replica::Create(without_.model, kLogits, far).value();
  HostTables tables(model_, without_);
  int64_t bytes = 0;
  for (const int64_t count : {8, 3, 8}) {
    tables.Run(*replica, IdExamples(model_, count).Batch());
    for (const ModelInput& input : without_.model.inputs()) {
      if (input.needs_gradient) bytes += count * input.shape.num_elements() * int64_t{sizeof(float)};
    }
    EXPECT_EQ(far.bytes_up_pinned(), bytes);
  }
}

class InputGradientsOfMirrors : public InputGradientsTest, public testing::WithParamInterface<const char*> {};

TEST_P(InputGradientsOfMirrors, EachExampleHasItsShareOfTheWholeBatch) {
  const Devices devices(GetParam());
  ExpectTheStepsOfOneDevice(*MakeMirroredReplica(without_.model, kLogits, devices.pointers()).value(), 2e-6f);
}

INSTANTIATE_TEST_SUITE_P(Devices, InputGradientsOfMirrors, testing::Values("n", "nn", "nnn", "ff", "nf"));

TEST_F(InputGradientsTest, DevicesThatAddTheirGradientsUpCopyThoseOfInputs) {
  const Devices devices("ff");
  kernels::FakeDeviceGroup::Log log;
  ExpectTheStepsOfOneDevice(*MakeMirroredReplica(without_.model, kLogits, devices.pointers(),
                                                 {.group = std::make_unique<kernels::FakeDeviceGroup>(log)})
                                 .value(),
                            2e-6f);
}

class InputGradientsOfStages : public InputGradientsTest, public testing::WithParamInterface<const char*> {};

TEST_P(InputGradientsOfStages, MicroBatchesWriteTheirRows) {
  const Devices devices(GetParam());
  // The second stage reads no input, or "numbers", or also "users".
  for (const char* first : {"hidden", "bottom"}) {
    SCOPED_TRACE(first);
    ExpectTheStepsOfOneDevice(*MakePipelineReplica(Divided(devices, first)).value(), 2e-6f);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, InputGradientsOfStages, testing::Values("nn", "nf", "fn", "ff"));

TEST_F(InputGradientsTest, AnInputOfSeveralStagesIsRefused) {
  const Devices devices("nn");
  std::vector<int> device_of(without_.model.nodes().size(), 0);
  // "tags" has one reader, "all". In this model it has a second one.
  std::string json = Recommender();
  const std::string match = R"([["user_row", 0, 0], ["seen_mean", 0, 0]])";
  json.replace(json.find(match), match.size(), R"([["tag_mean", 0, 0], ["seen_mean", 0, 0]])");
  const Model model = Model::FromJson(json, "m").value();
  const ModelWithoutTables without = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  for (size_t i = 0; i < device_of.size(); ++i) {
    if (without.model.nodes()[i].layer->name() == "match") device_of[i] = 1;
  }
  const auto status = MakePipelineReplica({.model = without.model,
                                           .objective = kLogits,
                                           .threads = devices.pointers(),
                                           .locations = PipelineLocations::OfDevices(device_of),
                                           .micro_batches = 2})
                          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "the gradient of input 'tags' is needed, but 2 pipeline stages read the input: only one may");
}

// Nothing is sent to other processes or received from them.
class NoStages final : public RemoteStages {
 public:
  absl::StatusOr<const float*> Received(const StageTensor&) override { return absl::InternalError("none"); }
  void Send(int, const StageTensor&, absl::Span<const float>, bool) override {}
};

TEST_F(InputGradientsTest, StagesInOtherProcessesAreRefused) {
  const Devices devices("nn");
  NoStages others;
  Pipeline::Options options = Divided(devices, "hidden");
  options.remote_stages = &others;
  const auto status = Pipeline::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "the gradient of input 'users' is needed, but a model divided among processes has none");
}

TEST_F(InputGradientsTest, ABatchWithoutExamplesAnnouncesThem) {
  const Devices one("n"), two("nf");
  kernels::FarDevice far;
  std::vector<std::unique_ptr<Replica>> replicas;
  replicas.push_back(Replica::Create(without_.model, kLogits, *cpu_).value());
  replicas.push_back(Replica::Create(without_.model, kLogits, far).value());
  replicas.push_back(MakeMirroredReplica(without_.model, kLogits, one.pointers()).value());
  replicas.push_back(MakePipelineReplica(Divided(two, "hidden")).value());
  const std::vector<float> parameters = without_.model.InitialParameters(1);
  std::vector<float> gradients(parameters.size(), 1.0f);
  for (const std::unique_ptr<Replica>& replica : replicas) {
    std::vector<int> announced;
    const auto result = replica->ForwardBackward(parameters, BatchView{}, absl::MakeSpan(gradients),
                                                 [&](int gradient) { announced.push_back(gradient); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(announced, ElementsAre(5, 4, 3, 2, 1, 0, -3, -4, -5, -6));
    EXPECT_THAT(gradients, Each(0.0f));
  }
}

TEST_F(InputGradientsTest, MissingAndSuperfluousMemoryIsRefused) {
  const std::unique_ptr<Replica> replica = Replica::Create(without_.model, kLogits, *cpu_).value();
  const std::vector<float> parameters = without_.model.InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  HostTables tables(model_, without_);
  const IdExamples examples(model_, 4);
  const auto error = [&](const BatchView& batch) {
    return std::string(replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {})
                           .status()
                           .message());
  };
  BatchView batch = tables.Lookup(examples.Batch());
  batch.input_gradients.pop_back();
  EXPECT_EQ(error(batch),
            "memory for 0 elements of the gradient of input 'tags', which has 12 in a batch of 4 examples");
  batch = tables.Lookup(examples.Batch());
  batch.input_gradients[0] = absl::MakeSpan(gradients).first(8);
  EXPECT_EQ(error(batch),
            "memory for 8 elements of the gradient of input 'numbers', which has 0 in a batch of 4 examples");
  batch = tables.Lookup(examples.Batch());
  batch.input_gradients.push_back({});
  EXPECT_THAT(error(batch), HasSubstr("a batch with gradients of 7 inputs for a model of 6"));
  EXPECT_EQ(error(tables.Lookup(examples.Batch())), "");
}

// Users and items alone: all parameters are in tables.
TEST(InputGradients, AModelNeedsNoOtherVariables) {
  const std::string layers = absl::StrCat(
      LayerOf("InputLayer", "user", R"("batch_shape": [null, 1], "dtype": "int64")", ""), ",",
      LayerOf("InputLayer", "item", R"("batch_shape": [null, 1], "dtype": "int64")", ""), ",",
      LayerOf("Embedding", "users", R"("input_dim": 5, "output_dim": 4)", R"([["user", 0, 0]])"), ",",
      LayerOf("Embedding", "items", R"("input_dim": 6, "output_dim": 4)", R"([["item", 0, 0]])"), ",",
      LayerOf("Multiply", "match", "", R"([["users", 0, 0], ["items", 0, 0]])"), ",",
      LayerOf("Reshape", "column", R"("target_shape": [4, 1])", R"([["match", 0, 0]])"), ",",
      LayerOf("GlobalAveragePooling1D", "score", "", R"([["column", 0, 0]])"));
  const Model model =
      Model::FromJson(
          absl::StrCat(R"({"class_name": "Functional", "config": {"name": "mf", "layers": [)", layers,
                       R"(], "input_layers": [["user", 0, 0], ["item", 0, 0]],
                                         "output_layers": [["score", 0, 0]]}})"),
          "m")
          .value();
  const ModelWithoutTables without = ReplaceEmbeddings(model, EmbeddingLayers(model)).value();
  EXPECT_EQ(without.model.num_parameters(), 0);
  const LossSpec loss = {.kind = kernels::LossKind::kMeanSquaredError};
  const std::unique_ptr<kernels::Device> cpu = kernels::CreateCpuDevice(0, 1).value();
  const std::unique_ptr<Replica> original = Replica::Create(model, loss, *cpu).value();
  for (const char* kinds : {"n", "f", "nn", "ff"}) {
    SCOPED_TRACE(kinds);
    const Devices devices(kinds);
    const std::unique_ptr<Replica> replica =
        MakeMirroredReplica(without.model, loss, devices.pointers()).value();
    HostTables tables(model, without);
    const IdExamples examples(model, 6);
    const HostTables::Step step = tables.Run(*replica, examples.Batch());
    for (const auto& [name, gradient] :
         GradientsOf(model, *original, model.InitialParameters(1), examples.Batch())) {
      ExpectNear(step.gradients.at(name), gradient, 1e-6f, name.c_str());
    }
  }
}

}  // namespace
}  // namespace cairn::nn

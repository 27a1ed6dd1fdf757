#include "worker/placement/layer_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/device.h"
#include "worker/devices/placement_rule.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPlacedModel[] = R"({"config": {"layers": [
    {"class_name": "Dense", "config": {"name": "first", "units": 8, "input_shape": [4]}},
    {"class_name": "Dense", "device": "/cpu:1", "config": {"name": "dense", "units": 4}},
    {"class_name": "Dense", "config": {"name": "dense_1", "units": 2, "device": "cpu:0"}}]}})";

class LayerPlacementTest : public testing::Test {
 protected:
  absl::StatusOr<LayerPlacement> Place(std::vector<std::string> rules) {
    return PlaceLayers(model_, rules, request_,
                       {.count_gpus = [this] { return gpus_; },
                        .describe_gpu = nullptr,
                        .make_gpu = nullptr,
                        .make_cpu = &kernels::CreateCpuDevice});
  }
  // The short names of the layers' devices.
  std::vector<std::string> Places(std::vector<std::string> rules) {
    const auto placement = Place(std::move(rules));
    EXPECT_TRUE(placement.ok()) << placement.status();
    if (!placement.ok()) return {};
    std::vector<std::string> places;
    for (const int device : placement->device_of) {
      places.push_back(placement->devices[static_cast<size_t>(device)].name.ShortName());
    }
    return places;
  }
  std::string Refused(std::vector<std::string> rules) {
    const auto status = Place(std::move(rules)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const nn::Model model_ = nn::Model::FromJson(kPlacedModel, "model.json").value();
  DeviceRequest request_ = {.cpu_devices = 3, .task = {"worker", 1}};
  absl::StatusOr<int> gpus_ = absl::NotFoundError("no usable GPU: no NVIDIA driver");
};

TEST_F(LayerPlacementTest, ModelFilePlacesItsLayers) {
  EXPECT_THAT(Places({}), ElementsAre("/cpu:0", "/cpu:1", "/cpu:0"));
  request_.device = "/cpu:2";
  EXPECT_THAT(Places({}), ElementsAre("/cpu:2", "/cpu:1", "/cpu:0"));
}

// The reverse calls of an embedding read its table, so they run where the table is.
TEST(LayersOfOneTable, AreOnOneDevice) {
  const nn::Model model = nn::Model::FromJson(R"({"class_name": "Functional", "config": {"layers": [
      {"class_name": "InputLayer", "config": {"name": "ids", "batch_shape": [null, 3], "dtype": "int32"}},
      {"class_name": "ReversibleEmbedding", "config": {"name": "words", "input_dim": 5, "output_dim": 2},
       "inbound_nodes": [{"args": ["ids"]}, {"args": [["words", 0, 0]], "kwargs": {"reverse": true}}]}],
    "input_layers": ["ids"], "output_layers": [["words", 1, 0]]}})",
                                              "model.json")
                              .value();
  std::vector<std::string> remarks;
  const auto asked = AskedDevices(model, std::vector<std::string>{"words=/cpu:1"}, remarks);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ((*asked)[1].text, "/cpu:1");
}

TEST_F(LayerPlacementTest, RulesOverrideTheModelFile) {
  EXPECT_THAT(Places({"dense*=/cpu:2"}), ElementsAre("/cpu:0", "/cpu:2", "/cpu:2"));
  EXPECT_THAT(Places({"dense=/cpu:2"}), ElementsAre("/cpu:0", "/cpu:2", "/cpu:0"));
  EXPECT_THAT(Places({"dense_[0-9]=cpu:1", "?irst=/job:worker/task:1/device:CPU:2"}),
              ElementsAre("/cpu:2", "/cpu:1", "/cpu:1"));
}

TEST_F(LayerPlacementTest, LastMatchingRuleDecidesAndIsReported) {
  const auto placement = Place({"*=/cpu:1", "dense_1=/cpu:2"});
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_THAT(placement->remarks,
              ElementsAre("layer 'dense_1': --place 'dense_1=/cpu:2' overrides the earlier '*=/cpu:1'"));
  EXPECT_THAT(placement->device_of, ElementsAre(0, 0, 1));
}

TEST_F(LayerPlacementTest, MissingDeviceIsRefusedInTensorFlowsWords) {
  EXPECT_EQ(
      Refused({"dense*=/gpu:1"}),
      "Cannot assign a device for layer 'dense' (Dense): it was explicitly assigned to /device:GPU:1 but "
      "available devices are [ /job:worker/replica:0/task:1/device:CPU:0, "
      "/job:worker/replica:0/task:1/device:CPU:1, /job:worker/replica:0/task:1/device:CPU:2 ]. Make sure "
      "the device specification refers to a valid device. (no usable GPU: no NVIDIA driver)");
  request_.cpu_devices = 1;
  EXPECT_THAT(Refused({}), HasSubstr("layer 'dense' (Dense): it was explicitly assigned to /device:CPU:1"));
}

TEST_F(LayerPlacementTest, SoftPlacementFallsBackWithAWarning) {
  request_.allow_soft_placement = true;
  const auto placement = Place({"dense=/gpu:1"});
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_THAT(placement->device_of, ElementsAre(0, 0, 0));
  EXPECT_THAT(placement->warnings,
              ElementsAre("layer 'dense': there is no /gpu:1 (no usable GPU: no NVIDIA driver); available: "
                          "/cpu:0, /cpu:1, /cpu:2; it is on /cpu:0"));
}

TEST_F(LayerPlacementTest, RuleThatMatchesNoLayerIsRefused) {
  EXPECT_EQ(Refused({"dnse*=/cpu:0"}),
            "--place: no layer's name matches 'dnse*'; layers: first, dense, dense_1");
}

TEST_F(LayerPlacementTest, DeviceOfAnotherTaskIsRefused) {
  EXPECT_THAT(Refused({"dense=/job:worker/task:0/cpu:0"}),
              HasSubstr("belongs to another task, this is worker/1"));
}

TEST_F(LayerPlacementTest, LayersAndVariablesAreDescribed) {
  EXPECT_THAT(DescribeLayers(model_, Place({}).value()),
              ElementsAre("first: (Dense): /job:worker/task:1/device:CPU:0",
                          "dense: (Dense): /job:worker/task:1/device:CPU:1",
                          "dense_1: (Dense): /job:worker/task:1/device:CPU:0"));
  EXPECT_THAT(
      DescribeVariables(model_, 2),
      ElementsAre(
          "first/kernel: [4,8]: 128 bytes on /job:ps/task:0", "first/bias: [8]: 32 bytes on /job:ps/task:0",
          "dense/kernel: [8,4]: 128 bytes on /job:ps/task:1", "dense/bias: [4]: 16 bytes on /job:ps/task:0",
          "dense_1/kernel: [4,2]: 32 bytes on /job:ps/task:1", "dense_1/bias: [2]: 8 bytes on /job:ps/task:1",
          "/job:ps/task:0: 176 bytes in 3 pieces", "/job:ps/task:1: 168 bytes in 3 pieces",
          "the fullest server holds 1.023 times the mean"));
}

TEST(ParsePlacementRule, MalformedRulesAreRefused) {
  for (const char* text : {"", "dense", "=/gpu:0", "dense=gpu:x", "dense=/gpu:0/"}) {
    EXPECT_EQ(ParsePlacementRule(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParsePlacementRule("a=b=/gpu:0")->layers, "a=b");
}

TEST(ModelJson, DevicesOfLayersDoNotChangeTheModelsIdentity) {
  std::string other = kPlacedModel;
  other.replace(other.find("/cpu:1"), 6, "/gpu:7");
  EXPECT_EQ(nn::Model::FromJson(kPlacedModel, "a")->canonical_json(),
            nn::Model::FromJson(other, "b")->canonical_json());
  EXPECT_THAT(nn::Model::FromJson(kPlacedModel, "a")->canonical_json(), ::testing::Not(HasSubstr("cpu")));
}

}  // namespace
}  // namespace cairn::worker

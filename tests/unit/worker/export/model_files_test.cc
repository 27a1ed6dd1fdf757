#include "worker/export/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cairn/onnx/v1/model.pb.h"
#include "common/core/files.h"
#include "tests/unit/worker/export/small_model.h"
#include "worker/export/onnx_file.h"
#include "worker/export/weights.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

onnx::v1::Model Small() {
  const auto file = OnnxFile(SmallModel(), SmallParameters(), {{"global_step", "7"}});
  EXPECT_TRUE(file.ok()) << file.status();
  onnx::v1::Model model;
  EXPECT_TRUE(model.ParseFromString(*file));
  return model;
}

std::vector<float> Floats(const onnx::v1::Tensor& tensor) {
  std::vector<float> values(tensor.raw_data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.raw_data().data(), tensor.raw_data().size());
  return values;
}

TEST(OnnxFile, HasItsVersions) {
  const onnx::v1::Model model = Small();
  EXPECT_EQ(model.ir_version(), 8);
  ASSERT_EQ(model.opset_import_size(), 1);
  EXPECT_EQ(model.opset_import(0).domain(), "");
  EXPECT_EQ(model.opset_import(0).version(), 17);
  EXPECT_EQ(model.producer_name(), "cairn");
  ASSERT_EQ(model.metadata_props_size(), 1);
  EXPECT_EQ(model.metadata_props(0).key(), "global_step");
  EXPECT_EQ(model.metadata_props(0).value(), "7");
}

TEST(OnnxFile, BatchExtentIsVariable) {
  const onnx::v1::Graph graph = Small().graph();
  for (const onnx::v1::ValueInfo& port : {graph.input(0), graph.output(0)}) {
    const auto& type = port.type().tensor_type();
    EXPECT_EQ(type.elem_type(), onnx::v1::Tensor::DATA_TYPE_FLOAT);
    ASSERT_EQ(type.shape().dim_size(), 2);
    EXPECT_EQ(type.shape().dim(0).dim_param(), "batch");
    EXPECT_EQ(type.shape().dim(1).dim_value(), 2);
  }
}

TEST(OnnxFile, DenseLayerKeepsItsNamesAndOrder) {
  const onnx::v1::Graph graph = Small().graph();
  ASSERT_EQ(graph.node_size(), 1);
  EXPECT_EQ(graph.node(0).op_type(), "Gemm");
  EXPECT_THAT(graph.node(0).input(), ElementsAre(graph.input(0).name(), "dense/kernel", "dense/bias"));
  EXPECT_THAT(graph.node(0).output(), ElementsAre(graph.output(0).name()));
  ASSERT_EQ(graph.initializer_size(), 2);
  EXPECT_EQ(graph.initializer(0).name(), "dense/kernel");
  EXPECT_THAT(graph.initializer(0).dims(), ElementsAre(2, 2));
  EXPECT_THAT(Floats(graph.initializer(0)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Floats(graph.initializer(1)), ElementsAre(10, -10));
}

TEST(OnnxFile, AttributesHaveTheirTypes) {
  const auto model = *nn::Model::FromJson(R"({"config": {"layers": [
      {"class_name": "ELU", "config": {"alpha": 0, "input_shape": [2, 2]}},
      {"class_name": "Flatten"}]}})",
                                          "model");
  onnx::v1::Model file;
  ASSERT_TRUE(file.ParseFromString(*OnnxFile(model, {}, {})));
  const onnx::v1::Attribute& alpha = file.graph().node(0).attribute(0);
  EXPECT_EQ(alpha.type(), onnx::v1::Attribute::TYPE_FLOAT);
  EXPECT_TRUE(alpha.has_f());  // also if it is 0
  EXPECT_EQ(alpha.f(), 0);
  const onnx::v1::Attribute& axis = file.graph().node(1).attribute(0);
  EXPECT_EQ(axis.type(), onnx::v1::Attribute::TYPE_INT);
  EXPECT_EQ(axis.i(), 1);
}

TEST(OnnxFile, AModelOfMoreThan2GiBIsRefused) {
  const auto model = *nn::Model::FromJson(
      R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": 32768, "input_shape": [16384]}}]}})",
      "model");
  EXPECT_THAT(OnnxFile(model, {}, {}).status().message(),
              HasSubstr("the model's 536903680 values take more"));
}

TEST(ModelFiles, DirectoryHasAllThreeFilesAndTheyAgree) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/model_files/made");
  ASSERT_TRUE(PrepareModelDirectory(directory).ok());
  const auto names = WriteModelDirectory(directory, SmallModel(), SmallParameters(), {{"global_step", "7"}});
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("model.json", "model.safetensors", "model.onnx"));
  const auto read = LoadTrainedModel(directory + "/model.safetensors", directory + "/model.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.canonical_json(), SmallModel().canonical_json());
  EXPECT_EQ(read->parameters, SmallParameters());
  EXPECT_EQ(*ReadFile(directory + "/model.onnx"),
            *OnnxFile(SmallModel(), SmallParameters(), {{"global_step", "7"}}));
}

TEST(ModelFiles, OtherEndingIsRefusedWithTheSupportedOnes) {
  const absl::Status status = CheckModelFile("model.pb");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("'model.pb' ends in neither .onnx nor .safetensors"));
}

}  // namespace
}  // namespace cairn::worker

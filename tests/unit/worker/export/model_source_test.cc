#include "worker/export/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "tests/support/source_dir.h"
#include "worker/export/hdf5_file.h"

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

const std::string kJson = InSource("tests/support/data/keras316_mnist_cnn.json");
const std::string kArchive = InSource("tests/support/data/keras316_mnist_cnn.keras");  // without weights
const std::string kKeras2 = InSource("tests/support/data/keras_weights/keras2.h5");
const std::string kWeights = InSource("tests/support/data/keras_weights/dense.weights.h5");

std::string FaultOf(const std::string& path) {
  const auto model = ReadModelFile(path);
  EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
  return std::string(model.status().message());
}

bool HasHdf5() {
  return !absl::IsUnimplemented(Hdf5File::Open(data::SharedBytes()).status());
}

TEST(ReadModelFile, JsonAndArchiveDescribeTheSameNetwork) {
  const auto json = ReadModelFile(kJson), archive = ReadModelFile(kArchive);
  ASSERT_TRUE(json.ok()) << json.status();
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ(archive->num_parameters(), 93322);
  EXPECT_EQ(archive->compile_config().optimizer->class_name, "Adam");
  EXPECT_EQ(nn::SummaryTable(*json), nn::SummaryTable(*archive));
}

TEST(ReadModelFile, WholeHdf5ModelHasTheSettingsOfCompile) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no libhdf5";
  const auto model = ReadModelFile(kKeras2);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name(), "k2");
  EXPECT_EQ(model->inputs()[0].name, "in/image");
  EXPECT_EQ(model->nodes()[0].layer->name(), "block1/conv");
  EXPECT_EQ(model->compile_config().optimizer->class_name, "Adam");
  EXPECT_EQ(model->compile_config().losses.at(0).loss.config.at("from_logits"), 1);
  EXPECT_EQ(model->compile_config().metrics[0].metric.class_name, "accuracy");
}

TEST(ReadModelFile, WeightsWithoutAModelAreRefused) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no libhdf5";
  EXPECT_EQ(FaultOf(kWeights),
            kWeights + ": contains only weights and no model_config: give the model by --model");
}

TEST(ReadModelFile, DamagedArchiveIsNamed) {
  const std::string path = ::testing::TempDir() + "/model_source_test.keras";
  ASSERT_TRUE(WriteFileAtomically(path, "PK\x03\x04 and nothing that a zip has").ok());
  EXPECT_THAT(FaultOf(path), HasSubstr(path + ": is not a readable zip archive"));
  std::string archive = *ReadFile(kArchive);
  const size_t config = archive.find("config.json") + 11;
  archive[config + 200] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, archive).ok());
  EXPECT_THAT(FaultOf(path), HasSubstr(path + ": config.json: "));
}

TEST(ReadModelFile, MissingFileIsNotFound) {
  const auto model = ReadModelFile("/nonexistent/model.json");
  EXPECT_TRUE(absl::IsNotFound(model.status())) << model.status();
  EXPECT_THAT(model.status().message(), HasSubstr("/nonexistent/model.json"));
}

TEST(HasWeights, DetectsFilesWithWeights) {
  EXPECT_FALSE(HasWeights(kJson));
  EXPECT_FALSE(HasWeights(kArchive));
  EXPECT_TRUE(HasWeights(InSource("tests/support/data/keras_weights/keras2.keras")));
  EXPECT_FALSE(HasWeights("/nonexistent/model.keras"));
}

}  // namespace
}  // namespace cairn::worker

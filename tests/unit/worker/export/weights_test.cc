#include "worker/export/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/files.h"
#include "tests/unit/data/npz_files.h"
#include "tests/unit/worker/export/small_model.h"
#include "worker/checkpoint/safetensors.h"

namespace cairn::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Path(absl::string_view name) {
  return absl::StrCat(::testing::TempDir(), "/weights_test_", name);
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(Weights, AreReadByNameFromSafetensors) {
  const std::vector<float> bias = {10, -10}, kernel = {1, 2, 3, 4};
  const std::string path = Path("by_name.safetensors");
  ASSERT_TRUE(
      WriteSafetensors(path, {{{"dense/bias", {2}, bias}, {"dense/kernel", {2, 2}, kernel}}}, {}).ok());
  const auto values = LoadWeights(path, SmallModel());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(*values, SmallParameters());
}

TEST(Weights, AreReadByNameFromNpzAlsoAsDoubles) {
  const std::string path = Path("by_name.npz");
  const double bias[] = {10, -10};
  data::WriteNpz(path, {{"dense/bias.npy",
                         data::Npy("<f8", "(2,)", {reinterpret_cast<const char*>(bias), sizeof(bias)})},
                        {"dense/kernel.npy", data::Npy("<f4", "(2, 2)", Bytes({1, 2, 3, 4}))}});
  const auto values = LoadWeights(path, SmallModel());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(*values, SmallParameters());
}

TEST(Weights, IntegersAreRefused) {
  const std::string path = Path("ints.npz");
  data::WriteNpz(path, {{"dense/bias.npy", data::Npy("<i4", "(2,)", std::string(8, '\0'))}});
  const auto values = ReadWeightArrays(path);
  EXPECT_TRUE(absl::IsInvalidArgument(values.status()));
  EXPECT_THAT(values.status().message(), AllOf(HasSubstr(path), HasSubstr("dense/bias: is int32")));
}

TEST(Weights, MissingUnknownAndMisshapenVariablesAreNamed) {
  const WeightArray kernel = {{2, 2}, {1, 2, 3, 4}}, bias = {{2}, {10, -10}}, turned = {{4}, {1, 2, 3, 4}};
  const auto fault = [](const WeightArrays& arrays) {
    const auto values = MatchWeights(arrays, SmallModel(), "w.npz");
    EXPECT_TRUE(absl::IsInvalidArgument(values.status()));
    return std::string(values.status().message());
  };
  EXPECT_EQ(fault({{"dense/kernel", kernel}}), "w.npz: has no 'dense/bias'; it has dense/kernel");
  EXPECT_EQ(fault({{"dense/bias", bias}, {"dense/kernel", turned}}),
            "w.npz: 'dense/kernel' has shape [4], in the model [2,2]");
  EXPECT_EQ(fault({{"dense/bias", bias}, {"dense/kernel", kernel}, {"other/kernel", kernel}}),
            "w.npz: 'other/kernel' is not in the model");
}

TEST(Weights, DamagedFileIsRefusedNamingIt) {
  const std::string path = Path("damaged.safetensors");
  for (const absl::string_view contents : {"", "1234567", "\xff\xff\xff\xff\xff\xff\xff\x7f{}"}) {
    ASSERT_TRUE(WriteFileAtomically(path, contents).ok());
    const auto values = ReadWeightArrays(path);
    ASSERT_FALSE(values.ok());
    EXPECT_THAT(values.status().message(), HasSubstr(path));
  }
}

TEST(Weights, ValuesWithoutAModelNeedOne) {
  const auto read = LoadTrainedModel("model.npz", "");
  EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
  EXPECT_THAT(read.status().message(), HasSubstr("--model"));
}

}  // namespace
}  // namespace cairn::worker

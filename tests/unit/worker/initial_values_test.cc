#include "worker/inputs/initial_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

nn::Model ModelWith(const std::string& normalization) {
  const std::string text =
      R"({"class_name": "Sequential", "config": {"layers": [
            {"class_name": "InputLayer", "config": {"batch_shape": [null, 2]}},
            {"class_name": "Normalization", "config": {"name": "norm", "axis": [-1])" +
      normalization + R"(}},
            {"class_name": "Dense", "config": {"units": 1}}]}})";
  auto model = nn::Model::FromJson(text, "model.json");
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

TEST(WarnOfUnadaptedLayers, NamesNormalizationsWhoseStatisticsAreVariables) {
  EXPECT_THAT(WarnOfUnadaptedLayers(ModelWith("")),
              ElementsAre(HasSubstr("layer 'norm' (Normalization) passes its inputs unchanged")));
  EXPECT_THAT(WarnOfUnadaptedLayers(ModelWith(R"(, "mean": [1, 2], "variance": [4, 9])")), IsEmpty());
}

}  // namespace
}  // namespace cairn::worker

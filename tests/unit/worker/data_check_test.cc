#include "worker/data_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn::worker {
namespace {

using kernels::LossKind;

TEST(CheckClassNames, NamesOfClassesAreNoAmounts) {
  const std::vector<std::string> names = {"cold", "hot"};
  for (const LossKind kind : {LossKind::kMeanSquaredError, LossKind::kMeanAbsoluteError, LossKind::kHuber}) {
    const absl::Status status = CheckClassNames({.kind = kind}, names);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("the labels are names of 2 classes: 0 'cold', 1 'hot'"));
    EXPECT_TRUE(CheckClassNames({.kind = kind}, {}).ok()) << "labels that are numbers";
  }
  for (const LossKind kind : {LossKind::kSparseCategoricalCrossentropy, LossKind::kBinaryCrossentropy}) {
    EXPECT_TRUE(CheckClassNames({.kind = kind}, names).ok());
  }
}

}  // namespace
}  // namespace cairn::worker

#include "worker/inputs/data_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::worker {
namespace {

using kernels::LossKind;

TEST(CheckClassNames, ClassNamesAreRefusedForARegression) {
  const std::vector<std::string> names = {"cold", "hot"};
  for (const LossKind kind : {LossKind::kMeanSquaredError, LossKind::kMeanAbsoluteError, LossKind::kHuber}) {
    const absl::Status status = CheckClassNames(nn::LossSpec{.kind = kind}, names);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("the labels are names of 2 classes: 0 'cold', 1 'hot'"));
    EXPECT_TRUE(CheckClassNames(nn::LossSpec{.kind = kind}, {}).ok()) << "labels that are numbers";
  }
  for (const LossKind kind : {LossKind::kSparseCategoricalCrossentropy, LossKind::kBinaryCrossentropy}) {
    EXPECT_TRUE(CheckClassNames(nn::LossSpec{.kind = kind}, names).ok());
  }
}

// Examples of one number, with the given targets.
class Amounts final : public data::Dataset {
 public:
  explicit Amounts(std::vector<float> targets) : targets_(std::move(targets)) {}
  int64_t size() const override { return static_cast<int64_t>(targets_.size()); }
  const Shape& example_shape() const override { return shape_; }
  data::TargetInfo target_info() const override { return {}; }
  absl::Span<const float> Target(int64_t index) const override {
    return absl::MakeConstSpan(targets_).subspan(static_cast<size_t>(index), 1);
  }
  void Read(int64_t index, absl::Span<const MutableTensorView>, absl::Span<float> target) const override {
    target[0] = targets_[static_cast<size_t>(index)];
  }

 private:
  const Shape shape_ = {1};
  const std::vector<float> targets_;
};

absl::Status Check(LossKind kind, int units, std::vector<float> targets) {
  const nn::Model model = *nn::Model::FromJson(
      absl::StrCat(R"({"config": {"layers": [{"class_name": "Dense", "config": {"units": )", units,
                   R"(, "input_shape": [1]}}]}})"),
      "model");
  std::vector<std::string> remarks;
  return CheckDataset(model, nn::LossSpec{.kind = kind}, Amounts(std::move(targets)), remarks);
}

TEST(CheckDataset, NegativeTargetsAreAcceptedForARegression) {
  EXPECT_TRUE(Check(LossKind::kMeanSquaredError, 1, {1, 1, -1}).ok());
  EXPECT_TRUE(Check(LossKind::kHuber, 1, {1, 1, -1}).ok());
}

TEST(CheckDataset, TargetThatIsNotAClassIndexIsNamed) {
  const absl::Status status = Check(LossKind::kSparseCategoricalCrossentropy, 2, {1, 1, -1});
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("needs class indices, the data has 1 numbers per example; first: targets: "
                                   "example 2: the target is -1"));
}

}  // namespace
}  // namespace cairn::worker

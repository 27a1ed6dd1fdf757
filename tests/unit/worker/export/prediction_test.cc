#include "worker/inputs/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/export/small_model.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Row i is [i, -i]; SmallModel() outputs [10 - 2i, -10 - 2i].
class Countdown final : public data::RowSource {
 public:
  explicit Countdown(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const Shape& row_shape() const override { return shape_; }
  void Prefetch(int64_t) const override {}
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    to[0].floats()[0] = static_cast<float>(index);
    to[0].floats()[1] = -static_cast<float>(index);
  }

 private:
  const int64_t size_;
  const Shape shape_ = {2};
};

TEST(Predict, ReturnsTheOutputsOfEveryExampleInOrder) {
  const nn::Model model = SmallModel();
  const auto prediction = Predict({.model = model,
                                   .parameters = SmallParameters(),
                                   .inputs = Countdown(600)});  // the last batch is smaller
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_EQ(prediction->examples, 600);
  ASSERT_EQ(prediction->outputs.size(), 1200u);
  for (size_t i = 0; i < 600; ++i) {
    ASSERT_EQ(prediction->outputs[2 * i], 10 - 2 * static_cast<float>(i));
    ASSERT_EQ(prediction->outputs[2 * i + 1], -10 - 2 * static_cast<float>(i));
  }
  EXPECT_THAT(prediction->metrics, IsEmpty());
}

TEST(Predict, ComputesOnlyTheFirstRowsWithALimit) {
  const nn::Model model = SmallModel();
  const auto prediction =
      Predict({.model = model, .parameters = SmallParameters(), .inputs = Countdown(600), .limit = 1});
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_THAT(prediction->outputs, ElementsAre(10, -10));
}

TEST(Predict, ReturnsLossAndMetricsWithTargets) {
  const nn::Model model = SmallModel();
  const nn::LossSpec loss = {.kind = kernels::LossKind::kSparseCategoricalCrossentropy, .from_logits = true};
  const auto metrics = *nn::ParseMetrics({}, loss, model.output_shape());
  // Class 0 scores 20 more than class 1 in all rows. It is right in three of four, and the loss of the fourth
  // is 20.
  const data::Targets targets = {.values = {0, 0, 1, 0}, .num_classes = 2};
  const auto prediction = Predict({.model = model,
                                   .parameters = SmallParameters(),
                                   .inputs = Countdown(4),
                                   .targets = &targets,
                                   .objective = loss,
                                   .metrics = metrics});
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_THAT(prediction->metrics,
              ElementsAre(Pair("accuracy", 0.75), Pair("loss", ::testing::DoubleNear(5, 1e-5))));
}

TEST(Predict, RefusesInputsAndTargetsThatDoNotFit) {
  const nn::Model model = SmallModel();
  const data::Targets targets = {.values = {0, 0, 1}, .num_classes = 2};
  const auto prediction = Predict({.model = model,
                                   .parameters = SmallParameters(),
                                   .inputs = Countdown(4),
                                   .targets = &targets,
                                   .objective = nn::LossSpec{}});
  EXPECT_TRUE(absl::IsInvalidArgument(prediction.status()));
  EXPECT_THAT(prediction.status().message(), HasSubstr("3 labels do not match the 4 examples"));
}

TEST(ToProbabilities, AreTheSoftmaxOfLogits) {
  std::vector<float> outputs = {0, std::log(3.0f), 100, 100};
  ToProbabilities({.kind = kernels::LossKind::kSparseCategoricalCrossentropy, .from_logits = true}, 2,
                  absl::MakeSpan(outputs));
  EXPECT_THAT(outputs, ElementsAre(FloatEq(0.25), FloatEq(0.75), FloatEq(0.5), FloatEq(0.5)));
}

TEST(ToProbabilities, AppliesASigmoidToBinaryLogits) {
  std::vector<float> outputs = {0, std::log(3.0f)};
  ToProbabilities({.kind = kernels::LossKind::kBinaryCrossentropy, .from_logits = true}, 2,
                  absl::MakeSpan(outputs));
  EXPECT_THAT(outputs, ElementsAre(FloatEq(0.5), FloatEq(0.75)));
}

TEST(ToProbabilities, LeavesOtherOutputsUnchanged) {
  std::vector<float> outputs = {2, 3};
  ToProbabilities({.kind = kernels::LossKind::kMeanSquaredError, .from_logits = false}, 2,
                  absl::MakeSpan(outputs));
  EXPECT_THAT(outputs, ElementsAre(2, 3));
}

}  // namespace
}  // namespace cairn::worker

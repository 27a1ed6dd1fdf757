#include "nn/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::nn {
namespace {

using kernels::LossKind;
using ::testing::HasSubstr;

std::string LossFault(const KerasObject& loss) {
  return std::string(ParseLoss(loss).status().message());
}

TEST(ParseLoss, AllKerasNamesAreKnown) {
  const std::vector<std::pair<const char*, LossKind>> names = {
      {"SparseCategoricalCrossentropy", LossKind::kSparseCategoricalCrossentropy},
      {"sparse_categorical_crossentropy", LossKind::kSparseCategoricalCrossentropy},
      {"CategoricalCrossentropy", LossKind::kCategoricalCrossentropy},
      {"categorical_crossentropy", LossKind::kCategoricalCrossentropy},
      {"BinaryCrossentropy", LossKind::kBinaryCrossentropy},
      {"binary_crossentropy", LossKind::kBinaryCrossentropy},
      {"bce", LossKind::kBinaryCrossentropy},
      {"BCE", LossKind::kBinaryCrossentropy},
      {"MeanSquaredError", LossKind::kMeanSquaredError},
      {"mean_squared_error", LossKind::kMeanSquaredError},
      {"mse", LossKind::kMeanSquaredError},
      {"MSE", LossKind::kMeanSquaredError},
      {"MeanAbsoluteError", LossKind::kMeanAbsoluteError},
      {"mae", LossKind::kMeanAbsoluteError},
      {"Huber", LossKind::kHuber},
      {"huber", LossKind::kHuber},
      {"InBatchSoftmax", LossKind::kInBatchSoftmax},
      {"in_batch_softmax", LossKind::kInBatchSoftmax},
      {"CategoricalFocalCrossentropy", LossKind::kCategoricalFocalCrossentropy},
      {"categorical_focal_crossentropy", LossKind::kCategoricalFocalCrossentropy},
      {"BinaryFocalCrossentropy", LossKind::kBinaryFocalCrossentropy},
      {"binary_focal_crossentropy", LossKind::kBinaryFocalCrossentropy},
  };
  for (const auto& [name, kind] : names) {
    const auto loss = ParseLoss({.class_name = name});
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_EQ(loss->kind, kind) << name;
    EXPECT_FALSE(loss->from_logits);
  }
}

TEST(ParseLoss, OptionsAreRead) {
  const auto binary = ParseLoss({.class_name = "BinaryCrossentropy",
                                 .config = {{"from_logits", 1}, {"label_smoothing", 0.25}, {"axis", -1}}});
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_TRUE(binary->from_logits);
  EXPECT_EQ(binary->label_smoothing, 0.25);
  EXPECT_EQ(ParseLoss({.class_name = "Huber", .config = {{"delta", 2}}}).value().delta, 2);
  const auto retrieval = ParseLoss(
      {.class_name = "InBatchSoftmax", .config = {{"temperature", 0.1}, {"sampling_probability", 1}}});
  ASSERT_TRUE(retrieval.ok()) << retrieval.status();
  EXPECT_EQ(retrieval->temperature, 0.1);
  EXPECT_TRUE(retrieval->sampling_probability);
}

TEST(ParseLoss, FocalLossesHaveOptions) {
  const auto binary = ParseLoss({.class_name = "BinaryFocalCrossentropy",
                                 .config = {{"alpha", 0.75},
                                            {"gamma", 1.5},
                                            {"apply_class_balancing", 1},
                                            {"from_logits", 1},
                                            {"label_smoothing", 0.125},
                                            {"axis", -1}}});
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->alpha, 0.75);
  EXPECT_EQ(binary->gamma, 1.5);
  EXPECT_TRUE(binary->balanced);
  EXPECT_TRUE(binary->from_logits);
  EXPECT_EQ(binary->label_smoothing, 0.125);
  const LossSpec defaults = ParseLoss({.class_name = "binary_focal_crossentropy"}).value();
  EXPECT_EQ(defaults.alpha, 0.25);
  EXPECT_EQ(defaults.gamma, 2);
  EXPECT_FALSE(defaults.balanced);
  const auto categorical =
      ParseLoss({.class_name = "CategoricalFocalCrossentropy", .lists = {{"alpha", {0.5, 0.25, 1}}}});
  ASSERT_TRUE(categorical.ok()) << categorical.status();
  EXPECT_EQ(categorical->class_alphas, (std::vector<float>{0.5f, 0.25f, 1}));
  EXPECT_EQ(std::string(CheckOutput(*categorical, {4}).message()),
            "loss CategoricalFocalCrossentropy: alpha: a list of 3 numbers does not fit 4 classes");
  EXPECT_EQ(LossFault({.class_name = "CategoricalFocalCrossentropy", .config = {{"gamma", -1}}}),
            "loss CategoricalFocalCrossentropy: gamma -1: expected a number of at least 0");
  EXPECT_EQ(LossFault({.class_name = "BinaryFocalCrossentropy", .lists = {{"alpha", {0.5, 0.5}}}}),
            "loss BinaryFocalCrossentropy: alpha: [0.5,0.5] is not supported");
}

TEST(ParseLoss, LossesOfBoxesHaveAFormat) {
  const std::pair<const char*, kernels::BoxFormat> formats[] = {
      {"xyxy", kernels::BoxFormat::kXyxy},
      {"rel_yxyx", kernels::BoxFormat::kYxyx},
      {"xyWH", kernels::BoxFormat::kXywh},
      {"center_xyWH", kernels::BoxFormat::kCenterXywh},
      {"center_yxhw", kernels::BoxFormat::kCenterYxhw},
  };
  for (const auto& [name, format] : formats) {
    const auto loss = ParseLoss(
        {.class_name = "CIoULoss", .config = {{"eps", 1e-7}}, .texts = {{"bounding_box_format", name}}});
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_EQ(loss->kind, LossKind::kCiou);
    EXPECT_EQ(loss->box_format, format) << name;
  }
  EXPECT_EQ(LossFault({.class_name = "CIoULoss"}),
            "loss CIoULoss: bounding_box_format is missing: write it into the config, if the class does not");
  EXPECT_EQ(LossFault({.class_name = "GIoULoss", .texts = {{"bounding_box_format", "coco"}}}),
            "loss GIoULoss: bounding_box_format: \"coco\" is not supported; supported: xyxy, yxyx, xywh, "
            "center_xywh and center_yxhw, also after rel_");
}

TEST(ParseLoss, TheLossOfTheIntersectionHasModes) {
  const auto iou = [](std::map<std::string, std::string> texts) {
    texts["bounding_box_format"] = "xyxy";
    return KerasObject{.class_name = "IoULoss", .texts = std::move(texts)};
  };
  EXPECT_EQ(ParseLoss(iou({{"mode", "linear"}})).value().iou_mode, kernels::IouMode::kLinear);
  EXPECT_EQ(ParseLoss(iou({{"mode", "quadratic"}, {"axis", "no_reduction"}})).value().iou_mode,
            kernels::IouMode::kQuadratic);
  EXPECT_EQ(ParseLoss(iou({{"axis", "no_reduction"}})).value().iou_mode, kernels::IouMode::kLog)
      << "Keras' default";
  EXPECT_EQ(LossFault(iou({{"mode", "cubic"}})),
            "loss IoULoss: mode: \"cubic\": expected linear, quadratic or log");
  EXPECT_EQ(LossFault(iou({})),
            "loss IoULoss: mode: \"log\" of the mean over the batch is not supported; set axis to "
            "\"no_reduction\", for the mean of the losses of boxes");
  EXPECT_EQ(LossFault({.class_name = "Huber", .texts = {{"mode", "log"}}}),
            "loss Huber: mode: \"log\" is not supported");
}

TEST(CheckOutput, BoxesHaveFourNumbers) {
  const LossSpec loss = {.kind = LossKind::kGiou};
  EXPECT_EQ(CheckOutput(loss, {4}), absl::OkStatus());
  EXPECT_EQ(CheckOutput(loss, {10, 4}), absl::OkStatus());
  EXPECT_EQ(std::string(CheckOutput(loss, {4, 10}).message()),
            "loss GIoULoss: outputs [1,4,10]: a box has 4 numbers, along the last axis");
}

TEST(ParseLoss, AnotherLossIsRefusedWithTheSupportedOnes) {
  EXPECT_EQ(
      LossFault({.class_name = "Poisson"}),
      "loss 'Poisson' is not supported; supported: SparseCategoricalCrossentropy, "
      "CategoricalCrossentropy, BinaryCrossentropy, MeanSquaredError, MeanAbsoluteError, Huber, "
      "InBatchSoftmax, CategoricalFocalCrossentropy, BinaryFocalCrossentropy, IoULoss, GIoULoss, CIoULoss");
}

TEST(ParseLoss, UnsupportedOptionsAreRefusedByName) {
  EXPECT_EQ(LossFault({.class_name = "SparseCategoricalCrossentropy", .config = {{"label_smoothing", 0.5}}}),
            "loss SparseCategoricalCrossentropy: label_smoothing 0.5 is not supported");
  EXPECT_EQ(LossFault({.class_name = "mse", .config = {{"from_logits", 1}}}),
            "loss MeanSquaredError: from_logits 1 is not supported");
  EXPECT_EQ(LossFault({.class_name = "bce", .config = {{"axis", 1}}}),
            "loss BinaryCrossentropy: axis 1 is not supported");
}

TEST(ParseLoss, OptionsOutOfRangeAreRefusedByName) {
  EXPECT_THAT(LossFault({.class_name = "CategoricalCrossentropy", .config = {{"label_smoothing", 2}}}),
              HasSubstr("loss CategoricalCrossentropy: label_smoothing 2: expected a number from 0 to 1"));
  EXPECT_THAT(LossFault({.class_name = "Huber", .config = {{"delta", -1}}}),
              HasSubstr("loss Huber: delta -1: expected a number above 0"));
  EXPECT_THAT(LossFault({.class_name = "InBatchSoftmax", .config = {{"temperature", 0}}}),
              HasSubstr("loss InBatchSoftmax: temperature 0: expected a number above 0"));
}

TEST(CheckOutput, InBatchSoftmaxNeedsTwoEmbeddings) {
  const LossSpec loss = {.kind = LossKind::kInBatchSoftmax};
  LossSpec sampled = loss;
  sampled.sampling_probability = true;
  EXPECT_EQ(CheckOutput(loss, {8}), absl::OkStatus());
  EXPECT_EQ(CheckOutput(sampled, {9}), absl::OkStatus());
  EXPECT_EQ(std::string(CheckOutput(loss, {9}).message()),
            "loss InBatchSoftmax: outputs [1,1,9]: an output must be two embeddings of equal width");
  EXPECT_EQ(
      std::string(CheckOutput(sampled, {8}).message()),
      "loss InBatchSoftmax: outputs [1,1,8]: an output must be two embeddings of equal width and a sampling "
      "probability");
  EXPECT_FALSE(CheckOutput(loss, {3, 8}).ok());
}

TEST(CheckTargets, InBatchSoftmaxTakesAnyClassIndex) {
  const LossSpec loss = {.kind = LossKind::kInBatchSoftmax};
  EXPECT_EQ(CheckTargets(loss, {8}, {.num_classes = 5000}), absl::OkStatus());
  EXPECT_THAT(std::string(CheckTargets(loss, {8}, {.num_classes = 0}).message()),
              HasSubstr("needs class indices"));
}

TEST(CheckOutput, CategoriesNeedMoreThanOneScore) {
  for (LossKind kind : {LossKind::kSparseCategoricalCrossentropy, LossKind::kCategoricalCrossentropy,
                        LossKind::kCategoricalFocalCrossentropy}) {
    EXPECT_THAT(std::string(CheckOutput({.kind = kind}, {4, 1}).message()),
                HasSubstr("the model's output [4,1] has only one score, not one per class"));
    EXPECT_TRUE(CheckOutput({.kind = kind}, {4, 2}).ok());
  }
  EXPECT_TRUE(CheckOutput({.kind = LossKind::kBinaryCrossentropy}, {1}).ok());
}

TEST(CheckTargets, FittingTargetsAreAccepted) {
  EXPECT_TRUE(CheckTargets({}, {10}, {.num_targets = 1, .num_classes = 10}).ok());
  EXPECT_TRUE(CheckTargets({}, {4, 4, 3}, {.num_targets = 16, .num_classes = 2}).ok());
  EXPECT_TRUE(CheckTargets({.kind = LossKind::kCategoricalCrossentropy}, {10}, {.num_targets = 10}).ok());
  EXPECT_TRUE(
      CheckTargets({.kind = LossKind::kBinaryCrossentropy}, {1}, {.num_targets = 1, .num_classes = 2}).ok());
  EXPECT_TRUE(CheckTargets({.kind = LossKind::kHuber}, {3, 2}, {.num_targets = 6}).ok());
}

TEST(CheckTargets, ClassIndicesAndNumbersMayHavePositions) {
  const LossSpec sparse = {.kind = LossKind::kSparseCategoricalCrossentropy};
  const TargetsInfo mask = {.num_targets = 6, .position_classes = 3, .shape = {2, 3}};
  EXPECT_EQ(CheckTargets(sparse, {2, 3, 3}, mask), absl::OkStatus());
  EXPECT_EQ(CheckTargets(sparse, {2, 3, 3}, {.num_targets = 6, .position_classes = 3, .shape = {2, 3, 1}}),
            absl::OkStatus());
  EXPECT_EQ(CheckTargets(sparse, {2, 3, 3}, {.num_targets = 6, .position_classes = 3, .shape = {6}}),
            absl::OkStatus());
  EXPECT_THAT(std::string(CheckTargets(sparse, {3, 2, 3}, mask).message()),
              HasSubstr("output [3,2,3] needs targets of the shape [3,2], the data has [2,3]"));
  EXPECT_THAT(std::string(CheckTargets(sparse, {2, 3, 2}, mask).message()),
              HasSubstr("has 2 classes, labels go up to 2"));
  EXPECT_THAT(std::string(CheckTargets(sparse, {2, 3, 3}, {.num_targets = 6, .shape = {2, 3}}).message()),
              HasSubstr("needs class indices, the data has 6 numbers per example"));
  const LossSpec error = {.kind = LossKind::kMeanSquaredError};
  EXPECT_EQ(CheckTargets(error, {2, 3, 1}, {.num_targets = 6, .shape = {2, 3}}), absl::OkStatus());
  EXPECT_THAT(std::string(CheckTargets(error, {2, 3, 1}, {.num_targets = 6, .shape = {3, 2, 1}}).message()),
              HasSubstr("needs targets of the shape [2,3,1], the data has [3,2,1]"));
}

TEST(CheckTargets, ErrorsNameLossOutputAndData) {
  const std::vector<std::tuple<LossKind, Shape, TargetsInfo, const char*>> faults = {
      {LossKind::kSparseCategoricalCrossentropy,
       {10},
       {.num_targets = 1},
       "loss SparseCategoricalCrossentropy: the model's output [10] needs class indices, the data has 1 "
       "numbers "
       "per example"},
      {LossKind::kSparseCategoricalCrossentropy,
       {5},
       {.num_targets = 1, .num_classes = 10},
       "loss SparseCategoricalCrossentropy: the model's output [5] has 5 classes, labels go up to 9"},
      {LossKind::kSparseCategoricalCrossentropy,
       {4, 5},
       {.num_targets = 1, .num_classes = 5},
       "loss SparseCategoricalCrossentropy: the model's output [4,5] needs 4 class indices per example, the "
       "data "
       "has 1"},
      {LossKind::kCategoricalCrossentropy,
       {10},
       {.num_targets = 1, .num_classes = 10},
       "loss CategoricalCrossentropy: the model's output [10] needs 10 targets per example, the data has 1; "
       "class "
       "indices need SparseCategoricalCrossentropy"},
      {LossKind::kMeanSquaredError,
       {2},
       {.num_targets = 3},
       "loss MeanSquaredError: the model's output [2] needs 2 targets per example, the data has 3"},
      {LossKind::kBinaryCrossentropy,
       {1},
       {.num_targets = 1, .num_classes = 10},
       "loss BinaryCrossentropy: the model's output [1] needs targets of 0 and 1, labels go up to 9"},
  };
  for (const auto& [kind, output, data, message] : faults) {
    const absl::Status status = CheckTargets({.kind = kind}, output, data);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
}

TEST(TargetFault, CrossEntropiesAdmitOnlyFractions) {
  for (const LossKind kind : {LossKind::kBinaryCrossentropy, LossKind::kCategoricalCrossentropy,
                              LossKind::kBinaryFocalCrossentropy, LossKind::kCategoricalFocalCrossentropy}) {
    EXPECT_EQ(TargetFault({.kind = kind}, {0.0f, 1.0f, 0.25f}), "");
    EXPECT_EQ(TargetFault({.kind = kind}, {0.0f, -1.0f}),
              absl::StrCat("is -1; ", ClassName(kind), " admits 0 to 1"));
    EXPECT_EQ(TargetFault({.kind = kind}, {5.5f}),
              absl::StrCat("is 5.5; ", ClassName(kind), " admits 0 to 1"));
    EXPECT_NE(TargetFault({.kind = kind}, {std::nanf("")}), "");
  }
}

TEST(TargetFault, ClassIndicesAreNonNegativeIntegers) {
  const LossSpec loss = {.kind = LossKind::kSparseCategoricalCrossentropy};
  EXPECT_EQ(TargetFault(loss, {0.0f, 7.0f}), "");
  EXPECT_EQ(TargetFault(loss, {0.0f, -1.0f}),
            "is -1; SparseCategoricalCrossentropy admits non-negative integers");
  EXPECT_NE(TargetFault(loss, {0.5f}), "");
}

TEST(TargetFault, RegressionsAdmitAnyFiniteNumber) {
  for (const LossKind kind : {LossKind::kMeanSquaredError, LossKind::kMeanAbsoluteError, LossKind::kHuber}) {
    EXPECT_EQ(TargetFault({.kind = kind}, {-1.0f, 5.5f}), "");
    EXPECT_EQ(TargetFault({.kind = kind}, {HUGE_VALF}),
              absl::StrCat("is inf; ", ClassName(kind), " admits finite numbers"));
  }
}

TEST(TargetOddity, SharesOfOneRowAddUpToOne) {
  const LossSpec loss = {.kind = LossKind::kCategoricalCrossentropy};
  EXPECT_EQ(TargetOddity(loss, 2, {0.0f, 1.0f, 0.3f, 0.7f}), "");
  EXPECT_EQ(TargetOddity(loss, 3, {0.3333f, 0.3333f, 0.3333f}), "") << "rounded";
  EXPECT_EQ(TargetOddity(loss, 2, {0.0f, 1.0f, 1.0f, 1.0f}),
            "adds up to 2; CategoricalCrossentropy expects shares that add up to 1");
  EXPECT_EQ(TargetOddity({.kind = LossKind::kBinaryCrossentropy}, 2, {1.0f, 1.0f}), "");
}

}  // namespace
}  // namespace cairn::nn

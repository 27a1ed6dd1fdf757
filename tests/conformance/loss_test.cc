#include <cmath>
#include <limits>

#include "tests/conformance/loss_conformance.h"

namespace cairn::conformance {
namespace {

TEST_P(LossConformance, LossesAndGradientsOfManyShapes) {
  const std::vector<std::array<int64_t, 3>> shapes = {{1, 1, 2}, {2, 1, 3},  {3, 4, 5},   {64, 1, 10},
                                                      {5, 7, 1}, {1, 1, 17}, {65, 1, 100}};
  for (LossKind kind : kKinds) {
    for (const auto& [batch, rows, width] : shapes) {
      const bool over_classes = kind == LossKind::kSparseCategoricalCrossentropy || TakesShares(kind);
      if (over_classes && width == 1) continue;
      for (bool weighted : {false, true}) {
        const LossParams params = {.kind = kind, .batch = batch, .rows_per_example = rows, .width = width};
        Check(params, weighted);
        if (!IsOfClasses(kind)) continue;
        LossParams logits = params;
        logits.from_logits = true;
        Check(logits, weighted);
        if (kind == LossKind::kSparseCategoricalCrossentropy) continue;
        for (LossParams smooth : {params, logits}) {
          smooth.label_smoothing = 0.1;
          Check(smooth, weighted);
        }
      }
    }
  }
}

TEST_P(LossConformance, LargeBatchesAndWideRows) {
  const std::vector<std::array<int64_t, 3>> shapes = {{1500, 1, 3}, {250, 5, 8}, {2, 1, 4500}, {1, 2, 8501}};
  for (LossKind kind : kKinds) {
    for (const auto& [batch, rows, width] : shapes) {
      Check({.kind = kind, .batch = batch, .rows_per_example = rows, .width = width}, true);
      if (!IsOfClasses(kind)) continue;
      Check({.kind = kind, .batch = batch, .rows_per_example = rows, .width = width, .from_logits = true},
            false);
    }
  }
}

TEST_P(LossConformance, EveryRunGivesTheSameBits) {
  const Values outputs = RandomTensor({1500, 10}, 1).values;
  const LossParams params = {.batch = 1500, .width = 10, .from_logits = true};
  auto op = device().ops().MakeLoss(params).value();
  const auto outputs_memory = Put(outputs), targets = Put(Values(1500, 3.0)), gradient = Poisoned(15000);
  std::vector<double> losses;
  for (int run = 0; run < 3; ++run) {
    LossSums sums;
    ASSERT_TRUE(op->Run(outputs_memory->data(), targets->data(), nullptr, &sums, gradient->data()).ok());
    ASSERT_TRUE(device().Synchronize().ok());
    losses.push_back(sums.loss);
  }
  EXPECT_EQ(losses, Values(3, losses[0]));
}

TEST_P(LossConformance, HuberIsLinearBeyondDelta) {
  Check({.kind = LossKind::kHuber, .batch = 9, .width = 11, .delta = 0.25}, true);
}

TEST_P(LossConformance, FocalLossesHaveOptions) {
  const std::vector<float> alphas = {0.5f, 0.25f, 1, 0, 2};
  for (const bool logits : {false, true}) {
    for (const double gamma : {0.0, 0.5, 1.0, 3.0}) {
      Check({.kind = LossKind::kCategoricalFocalCrossentropy,
             .batch = 7,
             .width = 5,
             .from_logits = logits,
             .label_smoothing = 0.1,
             .gamma = gamma,
             .class_alphas = alphas},
            true);
      Check({.kind = LossKind::kBinaryFocalCrossentropy,
             .batch = 7,
             .width = 5,
             .from_logits = logits,
             .label_smoothing = 0.1,
             .gamma = gamma,
             .alpha = 0.75,
             .balanced = true},
            true);
    }
  }
}

// Keras 3.15, for example of the second row: x = tensor(outputs, requires_grad=True)
// keras.losses.CategoricalFocalCrossentropy(from_logits=True, gamma=1.5, label_smoothing=.1)(targets, x).backward()
TEST_P(LossConformance, FocalLossesAreThoseOfKeras) {
  struct Row {
    LossParams params;
    Values outputs;
    double mean;
    Values gradient;
  };
  const Values probabilities = {0.7, 0.2, 0.1, 0.1, 0.3, 0.6}, logits = {2, -1, 0.5, -0.5, 1, 3};
  const LossKind categorical = LossKind::kCategoricalFocalCrossentropy;
  const LossKind binary = LossKind::kBinaryFocalCrossentropy;
  const std::vector<Row> rows = {
      {{.kind = categorical, .width = 3},
       probabilities,
       0.07775592058897018,
       {-0.012846617, 0.029975438, 0.029975438, 0.12445857, -0.29040331, 0.12445857}},
      {{.kind = categorical, .width = 3, .from_logits = true, .label_smoothing = 0.1, .gamma = 1.5},
       logits,
       0.24436506628990173,
       {0.0017291106, -0.0032737865, 0.0015446759, -0.0008793904, -0.12145442, 0.12233381}},
      {{.kind = categorical, .width = 3, .class_alphas = {0.2f, 0.5f, 0.3f}},
       probabilities,
       0.15069672465324402,
       {-0.010277294, 0.023980349, 0.023980349, 0.24891715, -0.58080661, 0.24891715}},
      {{.kind = binary, .width = 3},
       probabilities,
       0.16049084067344666,
       {-0.057096072, 0.023209568, 0.0053638713, 0.0053638713, -0.55314916, 0.33325815}},
      {{.kind = binary,
        .width = 3,
        .from_logits = true,
        .label_smoothing = 0.2,
        .gamma = 0.5,
        .alpha = 0.75,
        .balanced = true},
       logits,
       0.23546776175498962,
       {-0.0046143406, 0.0076367646, 0.025817074, 0.012683683, -0.017819118, 0.042254306}},
      {{.kind = binary, .width = 3, .gamma = 3, .balanced = true},
       probabilities,
       0.04259737581014633,
       {-0.0056197364, 0.0045971526, 0.00053399114, 0.00053399114, -0.12138221, 0.19119927}},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const Result result = Run(rows[i].params, rows[i].outputs, {1, 0, 0, 0, 1, 0});
    ASSERT_TRUE(result.status.ok()) << i << ": " << result.status;
    EXPECT_NEAR(result.sums.loss / 2, rows[i].mean, 1e-6) << i;
    for (size_t j = 0; j < 6; ++j)
      EXPECT_NEAR(result.gradient[j], rows[i].gradient[j], 2e-7) << i << ", " << j;
  }
}

// The numbers of keras/src/losses/losses_test.py and of the functions' documentation, as exact as they are
// there, where digits are cut off as often as rounded.
TEST_P(LossConformance, AgreesWithPublishedNumbersOfKeras) {
  struct Published {
    LossParams params;
    Values outputs, targets, weights;
    double mean, tolerance;
  };
  const Values three_probabilities = {0.9, 0.05, 0.05, 0.5, 0.89, 0.6, 0.05, 0.01, 0.94};
  const Values three_logits = {8, 1, 1, 0, 9, 1, 2, 3, 5};
  const Values identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const Values errors_outputs = {4, 8, 12, 8, 1, 3}, errors_targets = {1, 9, 2, -5, -2, 6};
  const LossParams sparse = {.kind = LossKind::kSparseCategoricalCrossentropy, .width = 3};
  const LossParams sparse_logits = {
      .kind = LossKind::kSparseCategoricalCrossentropy, .width = 3, .from_logits = true};
  const LossParams categorical = {.kind = LossKind::kCategoricalCrossentropy, .width = 3};
  const LossParams categorical_logits = {
      .kind = LossKind::kCategoricalCrossentropy, .width = 3, .from_logits = true};
  const LossParams binary = {.kind = LossKind::kBinaryCrossentropy, .width = 3};
  const LossParams binary_logits = {.kind = LossKind::kBinaryCrossentropy, .width = 3, .from_logits = true};
  const LossParams squared = {.kind = LossKind::kMeanSquaredError, .width = 3};
  const LossParams absolute = {.kind = LossKind::kMeanAbsoluteError, .width = 3};
  const std::vector<Published> numbers = {
      {sparse, three_probabilities, {0, 1, 2}, {}, 0.3239, 1e-4},
      {sparse, three_probabilities, {0, 1, 2}, {1.2, 3.4, 5.6}, 1.0696, 1e-4},
      {sparse_logits, three_logits, {0, 1, 2}, {}, (0.001822 + 0.000459 + 0.169846) / 3, 1e-6},
      {sparse_logits, three_logits, {0, 1, 2}, {1.2, 3.4, 5.6}, 0.31829, 5e-6},
      {sparse_logits, three_logits, {0, 1, 2}, {2.3, 2.3, 2.3}, 0.1317, 5e-4},
      // 16 pixels of two classes each, of which two are wrong.
      {{.kind = LossKind::kSparseCategoricalCrossentropy, .rows_per_example = 4, .width = 2},
       {1, 0, 0, 1, 0, 1, 0.2, 0.8, 0, 1, 1, 0, 0, 1, 1,   0,
        1, 0, 1, 0, 0, 1, 0,   1,   0, 1, 0, 1, 1, 0, 0.6, 0.4},
       {0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1},
       {},
       -(std::log(0.2) + std::log(0.4)) / 16,
       1e-6},
      {categorical, three_probabilities, identity, {}, 0.3239, 1e-4},
      {categorical, three_probabilities, identity, {1.2, 3.4, 5.6}, 1.0696, 1e-4},
      {categorical, {0.05, 0.95, 0, 0.1, 0.8, 0.1}, {0, 1, 0, 0, 0, 1}, {}, (0.0513 + 2.303) / 2, 5e-4},
      {categorical_logits, three_logits, identity, {}, (0.001822 + 0.000459 + 0.169846) / 3, 1e-6},
      {{.kind = LossKind::kCategoricalCrossentropy, .width = 3, .from_logits = true, .label_smoothing = 0.1},
       {100, -100, -100},
       {1, 0, 0},
       {},
       400.0 * 0.1 / 3,
       2e-6},
      {binary, {0.9, 0.1, 0.2, 0.3, 0.8, 0.1, 0.1, 0.2, 0.7}, identity, {}, 0.20046903, 2e-7},
      {{.kind = LossKind::kBinaryCrossentropy, .width = 2}, {1, 1, 1, 0}, {1, 0, 1, 0}, {}, 3.98559, 1e-5},
      {{.kind = LossKind::kBinaryCrossentropy, .width = 2},
       {1, 1, 1, 0},
       {1, 0, 1, 0},
       {1.2, 3.4},
       4.7827,
       5e-5},
      {{.kind = LossKind::kBinaryCrossentropy, .width = 2},
       {0.6, 0.4, 0.4, 0.6},
       {0, 1, 0, 0},
       {},
       (0.916 + 0.714) / 2,
       5e-4},
      {binary_logits, {10, -10, 10, 10, 10, -10}, {1, 0, 1, 0, 1, 1}, {}, 20.0 / 6, 5e-5},
      {binary_logits, {10, -10, 10, 10, 10, -10}, {1, 0, 1, 0, 1, 1}, {4, 3}, 10, 2e-4},
      {{.kind = LossKind::kBinaryCrossentropy, .width = 3, .from_logits = true, .label_smoothing = 0.1},
       {10, -10, -10},
       {1, 0, 1},
       {},
       (10.0 + 5.0 * 0.1) / 3,
       5e-5},
      {squared, errors_outputs, errors_targets, {}, 49.5, 0},
      {squared, errors_outputs, errors_targets, {1.2, 3.4}, 767.8 / 6, 1e-5},
      {squared, errors_outputs, errors_targets, {0, 0}, 0, 0},
      {absolute, errors_outputs, errors_targets, {}, 5.5, 1e-15},
      {absolute, errors_outputs, errors_targets, {1.2, 3.4}, 81.4 / 6, 1e-6},
      {{.kind = LossKind::kHuber, .width = 3},
       {0.9, 0.2, 0.2, 0.8, 0.4, 0.6},
       {1, 0, 1, 1, 0, 0},
       {},
       0.5 * (0.01 + 0.04 + 0.64 + 0.04 + 0.16 + 0.36) / 6,
       1e-7},
  };
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Published& published = numbers[i];
    const Result result = Run(published.params, published.outputs, published.targets, published.weights);
    ASSERT_TRUE(result.status.ok()) << i << ": " << result.status;
    EXPECT_NEAR(result.sums.loss / static_cast<double>(result.sums.examples), published.mean,
                published.tolerance)
        << "number " << i;
  }
}

TEST_P(LossConformance, TheMeanDividesByTheNumberOfExamplesNotByTheirWeights) {
  const Result result =
      Run({.kind = LossKind::kMeanSquaredError, .width = 2}, {1, 2, 3, 4}, {0, 0, 0, 0}, {1, 3});
  EXPECT_EQ(result.sums.loss, 1 * 2.5 + 3 * 12.5);
  EXPECT_EQ(result.gradient, (std::vector<float>{0.5f, 1, 4.5f, 6}));  // weight * 2 y / (batch * width)
}

TEST_P(LossConformance, APartOfABatchGivesItsPartOfTheGradientOfTheMean) {
  const Result result =
      Run({.kind = LossKind::kMeanSquaredError, .mean_over = 8, .width = 2}, {1, 2, 3, 4}, {0, 0, 0, 0});
  EXPECT_EQ(result.sums.loss, 2.5 + 12.5);
  EXPECT_EQ(result.sums.examples, 2);
  EXPECT_EQ(result.gradient, (std::vector<float>{0.125f, 0.25f, 0.375f, 0.5f}));  // 2 y / (8 * width)
}

// The loss of one of several outputs: columns of larger arrays, with a weight.
TEST_P(LossConformance, APartOfAnExamplesOutputsGivesTheGradientOfThatPart) {
  constexpr int64_t kBatch = 5, kFirstOutput = 3, kOutputStride = 29, kFirstTarget = 2, kTargetStride = 31;
  for (const LossKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    LossParams params = {.kind = kind, .batch = kBatch, .rows_per_example = 3, .width = 8};
    Values outputs, targets;
    for (const double value : RandomTensor({kBatch, params.outputs_per_example()}, 1).values)
      outputs.push_back(static_cast<float>(0.5 + 0.45 * value));
    for (int64_t i = 0; i < kBatch * params.targets_per_example(); ++i)
      targets.push_back(static_cast<double>(TakesClassIndices(kind) ? i % params.width : i % 2));
    const Result whole = Run(params, outputs, targets);
    ASSERT_TRUE(whole.status.ok()) << whole.status;

    params.weight = 0.25;
    params.output_stride = kOutputStride;
    params.target_stride = kTargetStride;
    Values wide_outputs(kBatch * kOutputStride, 7), wide_targets(kBatch * kTargetStride, 9);
    const auto spread = [](const Values& from, int64_t stride, int64_t first, Values& to) {
      const int64_t count = static_cast<int64_t>(from.size()) / kBatch;
      for (int64_t n = 0; n < kBatch; ++n)
        std::copy_n(from.begin() + n * count, count, to.begin() + n * stride + first);
    };
    spread(outputs, kOutputStride, kFirstOutput, wide_outputs);
    spread(targets, kTargetStride, kFirstTarget, wide_targets);
    auto op = device().ops().MakeLoss(params).value();
    const auto outputs_memory = Put(wide_outputs), targets_memory = Put(wide_targets);
    const auto gradient_memory = Put(Values(wide_outputs.size(), 5));
    LossSums sums;
    absl::Status status =
        op->Run(outputs_memory->data() + kFirstOutput, targets_memory->data() + kFirstTarget, nullptr, &sums,
                gradient_memory->data() + kFirstOutput);
    status.Update(device().Synchronize());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_NEAR(sums.loss, whole.sums.loss, 1e-6 * whole.sums.loss);
    const std::vector<float> gradient = Get(*gradient_memory, {Shape{kBatch * kOutputStride}});
    for (int64_t n = 0; n < kBatch; ++n) {
      for (int64_t i = 0; i < kOutputStride; ++i) {
        const int64_t inside = i - kFirstOutput, count = params.outputs_per_example();
        const float expected = inside >= 0 && inside < count
                                   ? 0.25f * whole.gradient[static_cast<size_t>(n * count + inside)]
                                   : 5.0f;
        ASSERT_NEAR(gradient[static_cast<size_t>(n * kOutputStride + i)], expected, 1e-7) << n << ", " << i;
      }
    }
  }
}

// Rows that a mask or ignore_class leaves out: the loss is the mean over the others.
TEST_P(LossConformance, RowsThatAreLeftOutHaveNoLoss) {
  constexpr int64_t kBatch = 3, kRows = 4, kWidth = 5, kStride = kRows * kWidth + kRows;
  const std::vector<bool> kept = {true,  false, true, true, false, false,
                                  false, false, true, true, false, true};
  for (const LossKind kind : kKinds) {
    for (const bool by_label : {false, true}) {
      if (by_label && kind != LossKind::kSparseCategoricalCrossentropy) continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << " by_label " << by_label);
      LossParams params = {.kind = kind, .batch = kBatch, .rows_per_example = kRows, .width = kWidth};
      const bool labels = TakesClassIndices(kind);
      Values outputs, targets, kept_outputs, kept_targets;
      const Values random = RandomTensor({kBatch * kRows, kWidth}, 1).values;
      for (int64_t i = 0; i < kBatch * kRows; ++i) {
        Values row, target;
        for (int64_t j = 0; j < kWidth; ++j) {
          row.push_back(static_cast<float>(0.5 + 0.45 * random[static_cast<size_t>(i * kWidth + j)]));
          if (!labels) target.push_back(static_cast<double>((i + j) % 2));
        }
        if (labels) target.push_back(static_cast<double>(i % kWidth));
        if (kept[static_cast<size_t>(i)]) {
          kept_outputs.insert(kept_outputs.end(), row.begin(), row.end());
          kept_targets.insert(kept_targets.end(), target.begin(), target.end());
        } else if (by_label) {
          target[0] = -7;
        }
        outputs.insert(outputs.end(), row.begin(), row.end());
        targets.insert(targets.end(), target.begin(), target.end());
        if (!by_label && i % kRows == kRows - 1) {
          for (int64_t row_of = i - kRows + 1; row_of <= i; ++row_of)
            outputs.push_back(kept[static_cast<size_t>(row_of)] ? 1 : 0);
        }
      }
      // The kept rows, as examples of one row.
      const Result mean = Run({.kind = kind, .width = kWidth}, kept_outputs, kept_targets);
      ASSERT_TRUE(mean.status.ok()) << mean.status;
      params.masked = !by_label;
      if (by_label) params.ignore_class = -7;
      if (!by_label) params.output_stride = kStride;
      auto op = device().ops().MakeLoss(params).value();
      const auto outputs_memory = Put(outputs), targets_memory = Put(targets);
      const auto gradient_memory = Put(Values(outputs.size(), 5));
      LossSums sums;
      absl::Status status =
          op->Run(outputs_memory->data(), targets_memory->data(), nullptr, &sums, gradient_memory->data());
      status.Update(device().Synchronize());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_NEAR(sums.loss / kBatch, mean.sums.loss / static_cast<double>(mean.sums.examples), 1e-5);
      const std::vector<float> gradient =
          Get(*gradient_memory, {Shape{static_cast<int64_t>(outputs.size())}});
      size_t next = 0;
      for (int64_t i = 0; i < kBatch * kRows; ++i) {
        const int64_t place = i / kRows * (by_label ? kRows * kWidth : kStride) + i % kRows * kWidth;
        for (int64_t j = 0; j < kWidth; ++j) {
          const float expected = kept[static_cast<size_t>(i)] ? mean.gradient[next++] : 0.0f;
          ASSERT_NEAR(gradient[static_cast<size_t>(place + j)], expected, 1e-6) << i << ", " << j;
        }
      }
    }
  }
}

// Weights of rows: the losses and gradients are those of as many examples of one row.
TEST_P(LossConformance, RowsHaveWeights) {
  constexpr int64_t kBatch = 3, kRows = 4, kWidth = 8;
  const Values weights = {1, 0.5, 2, 3, 0, 4, 1.5, 0.25, 1, 2, 0, 1};
  for (const LossKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    Values outputs, targets;
    for (const double value : RandomTensor({kBatch * kRows, kWidth}, 1).values)
      outputs.push_back(static_cast<float>(0.5 + 0.45 * value));
    const int64_t each = TakesClassIndices(kind) ? 1 : kWidth;
    for (int64_t i = 0; i < kBatch * kRows * each; ++i)
      targets.push_back(static_cast<double>(i % (TakesClassIndices(kind) ? kWidth : 2)));
    const Result rows = Run({.kind = kind, .width = kWidth}, outputs, targets, weights);
    ASSERT_TRUE(rows.status.ok()) << rows.status;
    const Result examples =
        Run({.kind = kind, .rows_per_example = kRows, .width = kWidth, .row_weights = true}, outputs, targets,
            weights);
    ASSERT_TRUE(examples.status.ok()) << examples.status;
    EXPECT_NEAR(examples.sums.loss / kBatch, rows.sums.loss / (kBatch * kRows), 1e-6);
    ASSERT_EQ(examples.gradient.size(), rows.gradient.size());
    for (size_t i = 0; i < rows.gradient.size(); ++i)
      ASSERT_NEAR(examples.gradient[i], rows.gradient[i], 1e-6) << i;
  }
}

// A loss takes its weights from among those of other losses: each example has 2 before and 1 behind them.
TEST_P(LossConformance, WeightsMayHaveAStride) {
  constexpr int64_t kBatch = 3, kRows = 4, kWidth = 8, kBefore = 2;
  const Values outputs = RandomTensor({kBatch * kRows, kWidth}, 1).values,
               targets(kBatch * kRows * kWidth, 0.5);
  for (const bool row_weights : {false, true}) {
    LossParams params = {.kind = LossKind::kMeanSquaredError, .rows_per_example = kRows, .width = kWidth};
    params.row_weights = row_weights;
    const int64_t each = params.weights_per_example();
    Values weights, spread;
    for (int64_t example = 0; example < kBatch; ++example) {
      spread.insert(spread.end(), kBefore, 100);
      for (int64_t i = 0; i < each; ++i) {
        weights.push_back(0.5 * static_cast<double>(example + 2 * i + 1));
        spread.push_back(weights.back());
      }
      spread.push_back(100);
    }
    const Result adjacent = Run(params, outputs, targets, weights);
    ASSERT_TRUE(adjacent.status.ok()) << adjacent.status;
    params.weight_stride = kBefore + each + 1;
    const Result apart = Run(params, outputs, targets, spread, true, kBefore);
    ASSERT_TRUE(apart.status.ok()) << apart.status;
    EXPECT_EQ(apart.sums.loss, adjacent.sums.loss);
    EXPECT_EQ(apart.gradient, adjacent.gradient);
  }
}

// Keras 3.15: SparseCategoricalCrossentropy(ignore_class=3)(y, p, sample_weight=w) with the values of Run().
TEST_P(LossConformance, WeightsOfRowsAndRowsThatAreLeftOut) {
  const Values outputs = {0.2, 0.3, 0.5, 0.6, 0.3, 0.1, 0.1, 0.8, 0.1, 0.3, 0.3, 0.4};
  const Result result = Run({.rows_per_example = 2, .width = 3, .row_weights = true, .ignore_class = 3},
                            outputs, {2, 3, 1, 0}, {2, 5, 0.5, 3});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_NEAR(result.sums.loss / 2, 1.7032614946365356, 1e-6);
  for (size_t j = 3; j < 6; ++j) EXPECT_EQ(result.gradient[j], 0);
}

TEST_P(LossConformance, ABatchWithoutRowsHasNoLoss) {
  const Result result =
      Run({.rows_per_example = 2, .width = 3, .ignore_class = 1}, Values(12, 0.5), {1, 1, 1, 1});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.sums.loss, 0);
  EXPECT_EQ(result.sums.examples, 2);
  for (const float value : result.gradient) EXPECT_EQ(value, 0);
}

TEST_P(LossConformance, WithoutGradientTheSumsAreTheSame) {
  const Values outputs = RandomTensor({7, 10}, 1).values;
  for (LossKind kind : kKinds) {
    const LossParams params = {.kind = kind, .width = 10, .from_logits = true};
    const Values targets(kind == LossKind::kSparseCategoricalCrossentropy ? 7 : 70, 1.0);
    EXPECT_EQ(Run(params, outputs, targets, {}, false).sums.loss, Run(params, outputs, targets).sums.loss);
  }
}

TEST_P(LossConformance, ProbabilitiesAreClippedAsKerasDoes) {
  const double at_zero = 16.118095651,
               at_one = 1.1920929e-7;  // -ln 1e-7, -ln(1 - 1e-7), the latter in float32
  const Result sparse = Run({.width = 2}, {0, 1, 1, 0}, {0, 0});
  EXPECT_NEAR(sparse.sums.loss, at_zero + at_one, 1e-5);
  EXPECT_EQ(sparse.gradient, (std::vector<float>{0, 0, 0, 0}));  // beyond the clip nothing changes
  const Result binary = Run({.kind = LossKind::kBinaryCrossentropy, .width = 1}, {0, 1}, {1, 1});
  EXPECT_NEAR(binary.sums.loss, at_zero + at_one, 1e-5);
  EXPECT_EQ(binary.gradient, (std::vector<float>{0, 0}));
}

TEST_P(LossConformance, HugeLogitsGiveFiniteLosses) {
  const Result sparse = Run({.width = 3, .from_logits = true}, {-30000, 30000, 0}, {0});
  EXPECT_EQ(sparse.sums.loss, 60000);
  EXPECT_EQ(sparse.gradient, (std::vector<float>{-1, 1, 0}));
  const Result binary =
      Run({.kind = LossKind::kBinaryCrossentropy, .width = 2, .from_logits = true}, {-30000, 30000}, {1, 0});
  EXPECT_EQ(binary.sums.loss, 30000);
  EXPECT_EQ(binary.gradient, (std::vector<float>{-0.5f, 0.5f}));
}

TEST_P(LossConformance, AnErrorOfZeroHasAGradientOfZero) {
  for (LossKind kind : {LossKind::kMeanSquaredError, LossKind::kMeanAbsoluteError, LossKind::kHuber}) {
    const Result result = Run({.kind = kind, .width = 1}, {2}, {2});
    EXPECT_EQ(result.sums.loss, 0);
    EXPECT_EQ(result.gradient, (std::vector<float>{0}));
  }
}

TEST_P(LossConformance, ALabelThatIsNotAClassIndexIsRefused) {
  const Values outputs = RandomTensor({3, 10}, 1).values;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, std::string>> labels = {
      {-1, "label -1 of example 1 "},      {10, "label 10 of example 1 "},
      {0.5, "label 0.5 of example 1 "},    {1e9, "label 1e+09 of example 1 "},
      {kNan, "label nan of example 1 "},   {kInfinity, "label inf of example 1 "},
      {-0.25, "label -0.25 of example 1 "}};
  for (const auto& [label, named] : labels) {
    const Result result = Run({.width = 10, .from_logits = true}, outputs, {0, label, 0});
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(result.status.message().find(named), absl::string_view::npos) << result.status;
  }
}

TEST_P(LossConformance, TheFirstOfManyBadLabelsIsNamedOnce) {
  auto op = device().ops().MakeLoss({.batch = 1500, .width = 3, .from_logits = true}).value();
  const auto outputs = Put(RandomTensor({1500, 3}, 1).values);
  Values labels(1500, 1.0);
  const auto good = Put(labels);
  for (size_t i = 700; i < 1500; ++i) labels[i] = static_cast<double>(i);
  const auto bad = Put(labels);
  LossSums sums;
  absl::Status status = op->Run(outputs->data(), bad->data(), nullptr, &sums, nullptr);
  status.Update(device().Synchronize());
  EXPECT_NE(status.message().find("label 700 of example 700 "), absl::string_view::npos) << status;
  status = op->Run(outputs->data(), good->data(), nullptr, &sums, nullptr);
  status.Update(device().Synchronize());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sums.examples, 1500);
}

TEST_P(LossConformance, ABadLabelIsNamedWithItsRow) {
  const Values outputs = RandomTensor({6, 5}, 1).values;
  const Result result = Run({.rows_per_example = 3, .width = 5}, outputs, {0, 0, 0, 0, 0, 7});
  EXPECT_NE(result.status.message().find("label 7 of example 1 of the batch, row 2"), absl::string_view::npos)
      << result.status;
}

TEST_P(LossConformance, InvalidParametersAreRefused) {
  for (const LossParams& params : {
           LossParams{.batch = 1, .width = 0},
           LossParams{.batch = 0, .width = 1},
           LossParams{.batch = 1, .rows_per_example = 0, .width = 1},
           LossParams{.batch = 1, .width = (1 << 24) + 1},
           LossParams{.kind = LossKind::kBinaryCrossentropy, .batch = 1, .width = 1, .label_smoothing = 1.5},
           LossParams{.kind = LossKind::kHuber, .batch = 1, .width = 1, .delta = 0},
           LossParams{.batch = 1, .width = 4, .output_stride = 3},
           LossParams{.kind = LossKind::kMeanSquaredError, .batch = 1, .width = 4, .target_stride = 3},
           LossParams{.batch = 1, .rows_per_example = 2, .width = 4, .weight_stride = 1, .row_weights = true},
           LossParams{.kind = LossKind::kInBatchSoftmax, .batch = 1, .width = 4, .weight_stride = 2},
           LossParams{.batch = 1, .width = 4, .weight = std::numeric_limits<double>::infinity()},
           LossParams{.kind = LossKind::kInBatchSoftmax, .batch = 2, .width = 4, .weight = 2},
           LossParams{.batch = 1, .width = 4, .masked = true},
           LossParams{.batch = 1, .width = 4, .output_stride = 4, .masked = true},
           LossParams{.kind = LossKind::kHuber, .batch = 1, .width = 4, .ignore_class = 0},
           LossParams{.kind = LossKind::kBinaryFocalCrossentropy, .batch = 1, .width = 4, .gamma = -1},
           LossParams{.kind = LossKind::kCategoricalFocalCrossentropy,
                      .batch = 1,
                      .width = 4,
                      .class_alphas = {0.5f, 0.5f}},
           LossParams{.kind = LossKind::kCiou, .batch = 1, .width = 5},
       }) {
    EXPECT_EQ(device().ops().MakeLoss(params).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

INSTANTIATE_CONFORMANCE(LossConformance);

}  // namespace
}  // namespace cairn::conformance

// Runs losses on every backend, against their definitions in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {

using kernels::LossKind;
using kernels::LossParams;
using kernels::LossSums;
using reference::Tensor;
using Values = std::vector<double>;

inline constexpr LossKind kKinds[] = {
    LossKind::kSparseCategoricalCrossentropy,
    LossKind::kCategoricalCrossentropy,
    LossKind::kBinaryCrossentropy,
    LossKind::kMeanSquaredError,
    LossKind::kMeanAbsoluteError,
    LossKind::kHuber,
    LossKind::kCategoricalFocalCrossentropy,
    LossKind::kBinaryFocalCrossentropy,
};
// Whether outputs are scores of classes: probabilities or logits.
inline bool IsOfClasses(LossKind kind) {
  return kind == LossKind::kSparseCategoricalCrossentropy || TakesShares(kind) || IsBinary(kind);
}

inline double CategoricalFocalLoss(const LossParams& params, const double* outputs, const Values& targets) {
  double sum = 0, loss = 0;
  const auto score = [&](int64_t j) {
    return params.from_logits ? std::exp(outputs[j] - outputs[0]) : outputs[j];
  };
  for (int64_t j = 0; j < params.width; ++j) sum += score(j);
  for (int64_t j = 0; j < params.width; ++j) {
    const double p = reference::Clip(score(j) / sum);
    const double alpha =
        params.class_alphas.empty() ? params.alpha : double{params.class_alphas[static_cast<size_t>(j)]};
    loss -= targets[static_cast<size_t>(j)] * alpha * std::pow(1 - p, params.gamma) * std::log(p);
  }
  return loss;
}
inline double BinaryFocalLoss(const LossParams& params, double output, double target) {
  const double p = params.from_logits ? 1 / (1 + std::exp(-output)) : output;
  const double weight = params.balanced ? target * params.alpha + (1 - target) * (1 - params.alpha) : 1;
  const double hit = target * p + (1 - target) * (1 - p);
  return weight * std::pow(1 - hit, params.gamma) * reference::BinaryCrossEntropy(p, target, false);
}

// One example's loss in double: the mean over its rows, and, but for the categorical losses, over its
// outputs.
inline double ExampleLoss(const LossParams& params, const double* outputs, const double* targets) {
  double sum = 0;
  for (int64_t row = 0; row < params.rows_per_example; ++row) {
    const double* y = outputs + row * params.width;
    const double* t = targets + row * params.width;
    if (params.kind == LossKind::kSparseCategoricalCrossentropy) {
      sum += reference::CrossEntropy(y, params.width, static_cast<int64_t>(targets[row]), params.from_logits);
      continue;
    }
    const double ignorant = IsBinary(params.kind) ? 0.5 : 1 / static_cast<double>(params.width);
    Values smooth;
    for (int64_t j = 0; j < params.width; ++j) {
      smooth.push_back((1 - params.label_smoothing) * t[j] + params.label_smoothing * ignorant);
    }
    if (params.kind == LossKind::kCategoricalCrossentropy) {
      sum += reference::CategoricalCrossEntropy(y, smooth.data(), params.width, params.from_logits);
      continue;
    }
    if (params.kind == LossKind::kCategoricalFocalCrossentropy) {
      sum += CategoricalFocalLoss(params, y, smooth);
      continue;
    }
    double row_sum = 0;
    for (int64_t j = 0; j < params.width; ++j) {
      const double error = y[j] - t[j];
      switch (params.kind) {
        case LossKind::kBinaryCrossentropy:
          row_sum += reference::BinaryCrossEntropy(y[j], smooth[static_cast<size_t>(j)], params.from_logits);
          break;
        case LossKind::kBinaryFocalCrossentropy:
          row_sum += BinaryFocalLoss(params, y[j], smooth[static_cast<size_t>(j)]);
          break;
        case LossKind::kMeanSquaredError:
          row_sum += error * error;
          break;
        case LossKind::kMeanAbsoluteError:
          row_sum += std::fabs(error);
          break;
        default:
          row_sum += reference::Huber(error, params.delta);
      }
    }
    sum += row_sum / static_cast<double>(params.width);
  }
  return sum / static_cast<double>(params.rows_per_example);
}

class LossConformance : public ConformanceTest {
 protected:
  struct Result {
    absl::Status status;
    LossSums sums;
    std::vector<float> gradient;
  };
  // `weights` may be empty; the first is number `first_weight`. The number of examples is that of the outputs.
  Result Run(LossParams params, const Values& outputs, const Values& targets, const Values& weights = {},
             bool with_gradient = true, int64_t first_weight = 0) {
    params.batch = static_cast<int64_t>(outputs.size()) / (params.rows_per_example * params.width);
    auto op = device().ops().MakeLoss(params);
    if (!op.ok()) return {op.status(), {}, {}};
    const auto outputs_memory = Put(outputs), targets_memory = Put(targets), weights_memory = Put(weights);
    const auto gradient = Poisoned(static_cast<int64_t>(outputs.size()));
    Result result;
    result.status = (*op)->Run(outputs_memory->data(), targets_memory->data(),
                               weights.empty() ? nullptr : weights_memory->data() + first_weight,
                               &result.sums, with_gradient ? gradient->data() : nullptr);
    result.status.Update(device().Synchronize());
    if (result.status.ok() && with_gradient) {
      result.gradient = Get(*gradient, {Shape{static_cast<int64_t>(outputs.size())}});
    }
    return result;
  }

  // Random outputs and targets of this loss, checked against the reference and its central differences.
  void Check(const LossParams& params, bool weighted) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(params.kind) << " [" << params.batch << ","
                                    << params.rows_per_example << "," << params.width << "] logits "
                                    << params.from_logits << ", smoothing " << params.label_smoothing
                                    << ", weighted " << weighted);
    const int64_t rows = params.batch * params.rows_per_example;
    const int64_t per_example = params.rows_per_example * params.width;
    Values outputs = Floats(RandomTensor({rows, params.width}, 1));
    const bool probabilities = IsOfClasses(params.kind) && !params.from_logits;
    for (double& output : outputs) {
      if (probabilities) output = static_cast<float>(0.5 + 0.45 * output);
    }
    Values targets;
    const Values random = Floats(RandomTensor({rows, params.width}, 2));
    for (int64_t i = 0; i < params.batch * params.targets_per_example(); ++i) {
      if (params.kind == LossKind::kSparseCategoricalCrossentropy) {
        targets.push_back(static_cast<double>(i % params.width));
      } else if (TakesShares(params.kind) && params.width > 1000) {
        targets.push_back(i % 1001 == 0 ? 1 : 0);  // many shares make a sum too large for differences of it
      } else if (IsOfClasses(params.kind) && i % 3 != 0) {
        targets.push_back(static_cast<double>(i % 2));
      } else {
        targets.push_back(std::fabs(random[static_cast<size_t>(i)]));
      }
    }
    const Values weights = weighted ? Floats(RandomTensor({params.batch}, 3)) : Values();

    const Result result = Run(params, outputs, targets, weights);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.sums.examples, params.batch);
    ASSERT_EQ(result.gradient.size(), outputs.size());
    double expected = 0;
    // For large batches only some of the outputs are tried.
    constexpr int64_t kMaxTried = 2000;
    const int64_t stride = std::max<int64_t>(1, rows * params.width * params.width / 5 / kMaxTried) | 1;
    for (int64_t n = 0; n < params.batch; ++n) {
      const double weight = weighted ? weights[static_cast<size_t>(n)] : 1;
      const double* target = &targets[static_cast<size_t>(n * params.targets_per_example())];
      double* output = &outputs[static_cast<size_t>(n * per_example)];
      expected += weight * ExampleLoss(params, output, target);
      for (int64_t i = n % stride; i < per_example; i += stride) {
        constexpr double kStep = 1e-6;
        const double value = output[i];
        output[i] = value + kStep;
        const double high = ExampleLoss(params, output, target);
        output[i] = value - kStep;
        const double low = ExampleLoss(params, output, target);
        output[i] = value;
        const double slope = weight * (high - low) / (2 * kStep) / static_cast<double>(params.batch);
        ASSERT_NEAR(result.gradient[static_cast<size_t>(n * per_example + i)], slope,
                    1e-6 + 1e-5 * std::fabs(slope))
            << "example " << n << ", output " << i;
      }
    }
    EXPECT_NEAR(result.sums.loss, expected, 1e-6 * static_cast<double>(rows * params.width));
  }

 private:
  // The results of the device for these arguments.
  static Values Floats(const Tensor& tensor) {
    Values values;
    for (double value : tensor.values) values.push_back(static_cast<float>(value));
    return values;
  }
};

}  // namespace cairn::conformance

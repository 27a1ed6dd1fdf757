// The in-batch softmax: the loss against its definition in double, the gradient against central differences of it.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::LossKind;
using kernels::LossParams;
using kernels::LossSums;
using Values = std::vector<double>;

class InBatchSoftmaxConformance : public ConformanceTest {
 protected:
  static LossParams Params(int64_t batch, int64_t dim) {
    return {.kind = LossKind::kInBatchSoftmax, .batch = batch, .width = 2 * dim};
  }

  struct Result {
    LossSums sums;
    std::vector<float> gradient;
  };
  Result Run(const LossParams& params, const Values& outputs, const Values& items,
             const Values& weights = {}) {
    auto op = device().ops().MakeLoss(params).value();
    const auto output_memory = Put(outputs), item_memory = Put(items), weight_memory = Put(weights);
    const auto gradient = Poisoned(params.batch * params.width);
    Result result;
    EXPECT_TRUE(op->Run(output_memory->data(), item_memory->data(),
                        weights.empty() ? nullptr : weight_memory->data(), &result.sums, gradient->data())
                    .ok());
    EXPECT_TRUE(device().Synchronize().ok());
    result.gradient = Get(*gradient, {Shape{params.batch * params.width}});
    return result;
  }

  // The sum over examples of weight times loss.
  static double Definition(const LossParams& params, const Values& outputs, const Values& items,
                           const Values& weights) {
    const auto width = static_cast<size_t>(params.width), dim = width / 2;
    double total = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      double own = 0, sum = 0;
      for (size_t j = 0; j < items.size(); ++j) {
        if (i != j && items[i] == items[j]) continue;
        double score = 0;
        for (size_t k = 0; k < dim; ++k) score += outputs[i * width + k] * outputs[j * width + dim + k];
        score /= params.temperature;
        if (params.sampling_probability)
          score -= std::log(std::clamp(outputs[j * width + 2 * dim], 1e-6, 1.0));
        if (i == j) own = score;
        sum += std::exp(score);
      }
      total += (weights.empty() ? 1 : weights[i]) * (std::log(sum) - own);
    }
    return total;
  }

  void Check(const LossParams& params, const Values& items, bool weighted) {
    SCOPED_TRACE(testing::Message() << "[" << params.batch << "," << params.width << "] temperature "
                                    << params.temperature << ", sampling " << params.sampling_probability
                                    << ", weighted " << weighted);
    Values outputs = Floats({params.batch, params.width}, 1);
    if (params.sampling_probability) {
      for (int64_t j = 0; j < params.batch; ++j) {
        double& probability = outputs[static_cast<size_t>((j + 1) * params.width - 1)];
        probability = static_cast<float>(0.01 + 0.1 * std::fabs(probability));
      }
    }
    const Values weights = weighted ? Floats({params.batch}, 2) : Values();
    const Result result = Run(params, outputs, items, weights);
    EXPECT_EQ(result.sums.examples, params.batch);
    EXPECT_NEAR(result.sums.loss, Definition(params, outputs, items, weights),
                1e-5 * static_cast<double>(params.batch));
    const double terms = static_cast<double>(params.terms());
    for (size_t at = 0; at < outputs.size(); ++at) {
      if (params.sampling_probability && (at + 1) % static_cast<size_t>(params.width) == 0) {
        EXPECT_EQ(result.gradient[at], 0) << "probabilities are constants";
        continue;
      }
      if (at % 7 != 0 && outputs.size() > 200) continue;
      constexpr double kStep = 1e-5;
      const double value = outputs[at];
      outputs[at] = value + kStep;
      const double high = Definition(params, outputs, items, weights);
      outputs[at] = value - kStep;
      const double low = Definition(params, outputs, items, weights);
      outputs[at] = value;
      const double slope = (high - low) / (2 * kStep) / terms;
      ASSERT_NEAR(result.gradient[at], slope, 1e-6 + 1e-5 * std::fabs(slope)) << "output " << at;
    }
  }

  static Values Floats(const Shape& shape, uint64_t seed) {
    Values values;
    for (const double value : RandomTensor(shape, seed).values) values.push_back(static_cast<float>(value));
    return values;
  }
  // 0, 1, 2, ... up to `items` - 1, and again.
  static Values Items(int64_t batch, int64_t items) {
    Values values;
    for (int64_t i = 0; i < batch; ++i) values.push_back(static_cast<double>(i % items));
    return values;
  }
};

TEST_P(InBatchSoftmaxConformance, LossesAndGradientsOfManyShapes) {
  for (const auto& [batch, dim] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 3}, {17, 4}, {40, 5}}) {
    for (const bool weighted : {false, true}) {
      Check(Params(batch, dim), Items(batch, batch), weighted);
      Check(Params(batch, dim), Items(batch, (batch + 1) / 2), weighted);
      LossParams sampled = Params(batch, dim);
      sampled.temperature = 0.25;
      sampled.sampling_probability = true;
      ++sampled.width;
      Check(sampled, Items(batch, 3), weighted);
      LossParams part = Params(batch, dim);
      part.mean_over = 100;
      Check(part, Items(batch, batch), weighted);
    }
  }
}

// Two queries of one dimension; by hand: scores [[2,1],[0,0]], so the losses are log(1 + exp(-1)) and log 2.
TEST_P(InBatchSoftmaxConformance, EveryOtherItemOfTheBatchIsANegative) {
  const Values outputs = {1, 2, 0, 1};
  EXPECT_NEAR(Run(Params(2, 1), outputs, {5, 9}).sums.loss, std::log1p(std::exp(-1.0)) + std::log(2.0), 1e-6);
}

TEST_P(InBatchSoftmaxConformance, AnEqualItemIsNoNegative) {
  const Result result = Run(Params(2, 1), {1, 2, 0, 1}, {5, 5});
  EXPECT_EQ(result.sums.loss, 0);
  EXPECT_EQ(result.gradient, (std::vector<float>{0, 0, 0, 0}));
}

TEST_P(InBatchSoftmaxConformance, HugeScoresGiveFiniteLosses) {
  const Result result = Run(Params(2, 1), {100, -300, 100, 300}, {0, 1});
  EXPECT_EQ(result.sums.loss, 60000);
  EXPECT_EQ(result.gradient, (std::vector<float>{300, -50, 0, 50}));
}

TEST_P(InBatchSoftmaxConformance, EveryRunGivesTheSameBits) {
  const LossParams params = Params(300, 8);
  const Values outputs = Floats({300, 16}, 3), items = Items(300, 200);
  const Result first = Run(params, outputs, items);
  for (int run = 0; run < 3; ++run) {
    const Result again = Run(params, outputs, items);
    EXPECT_EQ(again.sums.loss, first.sums.loss);
    EXPECT_EQ(again.gradient, first.gradient);
  }
}

TEST_P(InBatchSoftmaxConformance, OutputsThatAreNotTwoEmbeddingsAreRefused) {
  LossParams params = Params(2, 2);
  params.width = 3;
  EXPECT_EQ(device().ops().MakeLoss(params).status().code(), absl::StatusCode::kInvalidArgument);
  params.sampling_probability = true;
  params.width = 1;
  EXPECT_EQ(device().ops().MakeLoss(params).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_CONFORMANCE(InBatchSoftmaxConformance);

}  // namespace
}  // namespace cairn::conformance

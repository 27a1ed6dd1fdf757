// Ops whose work is large enough to be divided among threads give the same bits for any number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "kernels/ops.h"

namespace cairn::kernels {
namespace {

std::vector<float> RandomFloats(int64_t count) {
  Random random(1, "cpu_threads_test");
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.NextUniform(-2, 2);
  return values;
}

// `compute` returns what it computes on a device.
void ExpectSameBits(absl::FunctionRef<std::vector<float>(OpFactory& ops)> compute) {
  const std::vector<float> one = compute(CreateCpuDevice(0, 1).value()->ops());
  for (const int threads : {2, 3}) {
    EXPECT_EQ(compute(CreateCpuDevice(0, threads).value()->ops()), one) << threads << " threads";
  }
}

TEST(CpuThreads, SoftmaxAndItsGradient) {
  constexpr int64_t kRows = 50, kClasses = 3000;
  const std::vector<float> x = RandomFloats(kRows * kClasses);
  ExpectSameBits([&](OpFactory& ops) {
    const auto softmax = ops.MakeSoftmax({.shape = {kRows, kClasses}}).value();
    std::vector<float> y(x.size()), dx(x.size());
    EXPECT_TRUE(softmax->Forward(x.data(), y.data()).ok());
    EXPECT_TRUE(softmax->Backward(x.data(), y.data(), x.data(), dx.data()).ok());
    y.insert(y.end(), dx.begin(), dx.end());
    return y;
  });
}

TEST(CpuThreads, LossesOfLargeVocabularies) {
  constexpr int64_t kExamples = 5, kSteps = 12, kTokens = 4001;
  const std::vector<float> logits = RandomFloats(kExamples * kSteps * kTokens);
  std::vector<float> labels, weights;
  for (int64_t i = 0; i < kExamples * kSteps; ++i) {
    labels.push_back(static_cast<float>(i * 67 % kTokens));
    weights.push_back(0.25f * static_cast<float>(i % 7));
  }
  labels[7] = 0;
  for (const bool from_logits : {true, false}) {
    for (const bool with_gradient : {true, false}) {
      ExpectSameBits([&](OpFactory& ops) {
        std::vector<float> outputs = logits;
        if (!from_logits) {
          for (float& output : outputs) output = std::fabs(output) + 0.1f;
        }
        const auto loss = ops.MakeLoss({.kind = LossKind::kSparseCategoricalCrossentropy,
                                        .batch = kExamples,
                                        .rows_per_example = kSteps,
                                        .width = kTokens,
                                        .from_logits = from_logits,
                                        .row_weights = true,
                                        .ignore_class = 0})
                              .value();
        std::vector<float> results(outputs.size());
        LossSums sums;
        EXPECT_TRUE(loss->Run(outputs.data(), labels.data(), weights.data(), &sums,
                              with_gradient ? results.data() : nullptr)
                        .ok());
        EXPECT_GT(sums.loss, 1);
        results.push_back(static_cast<float>(sums.loss));
        results.push_back(static_cast<float>(sums.loss - results.back()));  // the rest of the double
        return results;
      });
    }
  }
}

TEST(CpuThreads, RowsOfATableAndTheirGradient) {
  constexpr int64_t kIndices = 700, kRows = 300, kWidth = 97;
  const std::vector<float> table = RandomFloats(kRows * kWidth), dy = RandomFloats(kIndices * kWidth);
  std::vector<float> indices;
  for (int64_t i = 0; i < kIndices; ++i) indices.push_back(static_cast<float>(i % 3 == 0 ? 5 : i % kRows));
  ExpectSameBits([&](OpFactory& ops) {
    const auto embedding = ops.MakeEmbedding({.indices = kIndices, .rows = kRows, .width = kWidth}).value();
    std::vector<float> y(dy.size()), dtable(table.size(), NAN), unchanged = dy;
    EXPECT_TRUE(embedding->Forward(indices.data(), table.data(), nullptr, y.data()).ok());
    EXPECT_EQ(y[10 * kWidth + 3], table[10 * kWidth + 3]);
    EXPECT_TRUE(embedding
                    ->Backward(indices.data(), table.data(), y.data(), unchanged.data(), nullptr,
                               dtable.data(), nullptr)
                    .ok());
    EXPECT_EQ(dtable[0], 0) << "no index is 0: those are multiples of 3";
    y.insert(y.end(), dtable.begin(), dtable.end());
    return y;
  });
}

TEST(CpuThreads, PenaltiesOfLargeVariables) {
  constexpr int64_t kElements = 50003;
  const std::vector<float> w = RandomFloats(kElements);
  double expected = 0;
  for (const float value : w) expected += 0.25 * std::fabs(value) + 0.5 * value * value;
  ExpectSameBits([&](OpFactory& ops) {
    const auto regularizer = ops.MakeRegularizer(kElements, 0.25f, 0.5f).value();
    std::vector<float> gradient(w.size(), 1.0f);
    double penalty = 0, again = 0;
    EXPECT_TRUE(regularizer->Run(w.data(), gradient.data(), &penalty).ok());
    EXPECT_TRUE(regularizer->Run(w.data(), nullptr, &again).ok());
    EXPECT_EQ(penalty, again);
    EXPECT_NEAR(penalty, expected, 1e-9 * expected);
    gradient.push_back(static_cast<float>(penalty - expected));
    return gradient;
  });
}

}  // namespace
}  // namespace cairn::kernels

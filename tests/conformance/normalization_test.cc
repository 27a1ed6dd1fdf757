// Batch and layer normalization, dropout, penalties.
#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

constexpr double kEpsilon = 1e-3;

class NormalizationConformance : public ConformanceTest {};

struct Statistics {
  std::vector<double> mean, variance;
};

// Of each channel, the last axis.
Statistics StatisticsOf(const Tensor& x) {
  const auto channels = static_cast<size_t>(x.shape[x.shape.rank() - 1]);
  const double count = static_cast<double>(x.values.size() / channels);
  Statistics s = {std::vector<double>(channels), std::vector<double>(channels)};
  for (size_t i = 0; i < x.values.size(); ++i) s.mean[i % channels] += x.values[i] / count;
  for (size_t i = 0; i < x.values.size(); ++i) {
    s.variance[i % channels] += std::pow(x.values[i] - s.mean[i % channels], 2) / count;
  }
  return s;
}

Tensor Normalize(const Tensor& x, const Statistics& s, const std::vector<double>& gamma,
                 const std::vector<double>& beta) {
  Tensor y(x.shape);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t c = i % s.mean.size();
    y.values[i] = gamma[c] * (x.values[i] - s.mean[c]) / std::sqrt(s.variance[c] + kEpsilon) + beta[c];
  }
  return y;
}

TEST_P(NormalizationConformance, BatchNormalizationInTraining) {
  for (const Shape& shape :
       {Shape{4, 3, 2, 16}, Shape{3, 2, 3, 5}, Shape{2, 2, 2, 40}, Shape{8, 7}, Shape{2, 5, 3}}) {
    for (Layout layout : {Layout::kRowMajor, Layout::kBlocked8, Layout::kBlocked16}) {
      if (shape.rank() != 4 && layout != Layout::kRowMajor) continue;
      const TensorDesc desc = {shape, layout};
      SCOPED_TRACE(desc.ToString());
      auto op = device().ops().MakeBatchNorm({.input = desc, .epsilon = static_cast<float>(kEpsilon)});
      ASSERT_TRUE(op.ok()) << op.status();
      const int64_t channels = shape[shape.rank() - 1];
      Tensor x = RandomTensor(shape, 1), gamma = RandomTensor({channels}, 2),
             beta = RandomTensor({channels}, 3);
      const auto x_memory = Put(x, layout), gamma_memory = Put(gamma), beta_memory = Put(beta);
      const auto mean = Poisoned(channels), variance = Poisoned(channels), y = Poisoned(desc.num_floats());
      ASSERT_TRUE((*op)
                      ->Forward(x_memory->data(), gamma_memory->data(), beta_memory->data(), mean->data(),
                                variance->data(), y->data())
                      .ok());
      const Statistics s = StatisticsOf(x);
      ExpectNear(Get(*mean, {{channels}}), s.mean, 16);
      ExpectNear(Get(*variance, {{channels}}), s.variance, 16);
      ExpectNear(Get(*y, desc), Normalize(x, s, gamma.values, beta.values).values, 64);

      const Tensor dy = RandomTensor(shape, 4);
      const auto dy_memory = Put(dy, layout), dx = Poisoned(desc.num_floats());
      const auto dgamma = Poisoned(channels), dbeta = Poisoned(channels);
      ASSERT_TRUE((*op)
                      ->Backward(x_memory->data(), gamma_memory->data(), mean->data(), variance->data(),
                                 dy_memory->data(), dx->data(), dgamma->data(), dbeta->data())
                      .ok());
      const auto loss = [&] {
        return Dot(Normalize(x, StatisticsOf(x), gamma.values, beta.values).values, dy.values);
      };
      ExpectGradient(Get(*dx, desc), x.values, loss);
      ExpectGradient(Get(*dgamma, {{channels}}), gamma.values, loss);
      ExpectGradient(Get(*dbeta, {{channels}}), beta.values, loss);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NormalizationConformance, BatchNormalizationByGivenStatistics) {
  for (Layout layout : {Layout::kRowMajor, Layout::kBlocked16}) {
    const TensorDesc desc = {{2, 3, 2, 5}, layout};
    auto op = device().ops().MakeBatchNorm({.input = desc,
                                            .epsilon = static_cast<float>(kEpsilon),
                                            .scale = false,
                                            .center = false,
                                            .frozen = true});
    ASSERT_TRUE(op.ok()) << op.status();
    Tensor x = RandomTensor(desc.shape, 1);
    const Statistics s = {RandomTensor({5}, 2).values, {0.5, 1, 2, 0.25, 4}};
    const std::vector<double> ones(5, 1.0), zeros(5, 0.0);
    const auto x_memory = Put(x, layout), mean = Put(s.mean), variance = Put(s.variance);
    const auto y = Poisoned(desc.num_floats()), dx = Poisoned(desc.num_floats());
    ASSERT_TRUE(
        (*op)->Infer(x_memory->data(), nullptr, nullptr, mean->data(), variance->data(), y->data()).ok());
    ExpectNear(Get(*y, desc), Normalize(x, s, ones, zeros).values, 16);
    const Tensor dy = RandomTensor(desc.shape, 4);
    const auto dy_memory = Put(dy, layout);
    ASSERT_TRUE((*op)
                    ->Backward(x_memory->data(), nullptr, mean->data(), variance->data(), dy_memory->data(),
                               dx->data(), nullptr, nullptr)
                    .ok());
    ExpectGradient(Get(*dx, desc), x.values,
                   [&] { return Dot(Normalize(x, s, ones, zeros).values, dy.values); });
  }
}

Tensor LayerNormalize(const Tensor& x, const std::vector<double>& gamma, const std::vector<double>& beta) {
  Tensor y(x.shape);
  const size_t width = gamma.size();
  for (size_t row = 0; row < x.values.size(); row += width) {
    double mean = 0, variance = 0;
    for (size_t j = 0; j < width; ++j) mean += x.values[row + j] / static_cast<double>(width);
    for (size_t j = 0; j < width; ++j)
      variance += std::pow(x.values[row + j] - mean, 2) / static_cast<double>(width);
    for (size_t j = 0; j < width; ++j) {
      y.values[row + j] = gamma[j] * (x.values[row + j] - mean) / std::sqrt(variance + kEpsilon) + beta[j];
    }
  }
  return y;
}

TEST_P(NormalizationConformance, LayerNormalization) {
  for (const auto& [rows, width] : {std::pair{1, 4}, {5, 7}, {130, 3}, {2, 65}}) {
    auto op =
        device().ops().MakeLayerNorm({.rows = rows, .width = width, .epsilon = static_cast<float>(kEpsilon)});
    ASSERT_TRUE(op.ok()) << op.status();
    Tensor x = RandomTensor({rows, width}, 1), gamma = RandomTensor({width}, 2),
           beta = RandomTensor({width}, 3);
    const auto x_memory = Put(x), gamma_memory = Put(gamma), beta_memory = Put(beta),
               y = Poisoned(rows * width);
    ASSERT_TRUE((*op)->Forward(x_memory->data(), gamma_memory->data(), beta_memory->data(), y->data()).ok());
    ExpectNear(Get(*y, {x.shape}), LayerNormalize(x, gamma.values, beta.values).values, 16);
    const Tensor dy = RandomTensor(x.shape, 4);
    const auto dy_memory = Put(dy), dx = Poisoned(rows * width), dgamma = Poisoned(width),
               dbeta = Poisoned(width);
    ASSERT_TRUE((*op)
                    ->Backward(x_memory->data(), gamma_memory->data(), dy_memory->data(), dx->data(),
                               dgamma->data(), dbeta->data())
                    .ok());
    const auto loss = [&] { return Dot(LayerNormalize(x, gamma.values, beta.values).values, dy.values); };
    ExpectGradient(Get(*dx, {x.shape}), x.values, loss);
    ExpectGradient(Get(*dgamma, {{width}}), gamma.values, loss);
    ExpectGradient(Get(*dbeta, {{width}}), beta.values, loss);
  }
}

TEST_P(NormalizationConformance, DropoutKeepsTheMeanAndDependsOnTheSeedAlone) {
  constexpr int64_t kCount = 100003;
  auto op = device().ops().MakeDropout(kCount, 0.25f).value();
  const Tensor ones = [] {
    Tensor t({kCount});
    std::fill(t.values.begin(), t.values.end(), 1.0);
    return t;
  }();
  const auto x = Put(ones), y = Poisoned(kCount), dx = Poisoned(kCount);
  const auto run = [&](uint64_t seed) {
    EXPECT_TRUE(op->Forward(x->data(), seed, y->data()).ok());
    return Get(*y, {ones.shape});
  };
  const auto first = run(1);
  int64_t kept = 0;
  for (float value : first) {
    ASSERT_TRUE(value == 0 || value == 1 / 0.75f) << value;
    kept += value != 0;
  }
  // Four standard deviations of a binomial distribution.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * kCount, 4 * std::sqrt(kCount * 0.25 * 0.75));
  ASSERT_TRUE(op->Backward(x->data(), dx->data()).ok());
  EXPECT_EQ(Get(*dx, {ones.shape}), first);
  EXPECT_NE(run(2), first);
  EXPECT_EQ(run(1), first);
}

TEST_P(NormalizationConformance, PenaltiesAndTheirGradients) {
  auto op = device().ops().MakeRegularizer(3, 0.5f, 0.25f).value();
  const auto w = Put(std::vector<double>{2, -1, 0}), gradient = Put(std::vector<double>{1, 1, 1});
  double penalty = 1;
  ASSERT_TRUE(op->Run(w->data(), gradient->data(), &penalty).ok());
  ASSERT_TRUE(device().Synchronize().ok());
  EXPECT_EQ(penalty, 1 + 0.5 * 3 + 0.25 * 5);
  EXPECT_EQ(Get(*gradient, {{3}}), (std::vector<float>{1 + 0.5f + 1, 1 - 0.5f - 0.5f, 1}));
}

INSTANTIATE_CONFORMANCE(NormalizationConformance);

}  // namespace
}  // namespace cairn::conformance

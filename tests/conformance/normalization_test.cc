// Batch and layer normalization, dropout, penalties.
#include "common/core/random.h"
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

// Per channel, the last axis.
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
  for (const Shape& shape : {Shape{4, 3, 2, 16}, Shape{3, 2, 3, 5}, Shape{2, 2, 2, 40}, Shape{8, 7},
                             Shape{2, 5, 3}, Shape{5000, 3}, Shape{2500, 8}, Shape{300, 70}}) {
    for (Layout layout : layouts()) {
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

TEST_P(NormalizationConformance, BatchNormalizationWithGivenStatistics) {
  for (Layout layout : layouts()) {
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

TEST_P(NormalizationConformance, VarianceIsPreciseForAMeanFarFromZero) {
  for (const Shape& shape : {Shape{100, 4}, Shape{5000, 3}}) {
    SCOPED_TRACE(shape.ToString());
    auto op = device().ops().MakeBatchNorm({.input = {shape}}).value();
    Tensor x = RandomTensor(shape, 1);
    for (double& value : x.values) value = static_cast<float>(1000 + value);
    const int64_t count = x.shape.num_elements(), channels = shape[1];
    const auto memory = Put(x), ones = Put(std::vector<double>(4, 1.0)), y = Poisoned(count);
    const auto mean = Poisoned(channels), variance = Poisoned(channels);
    ASSERT_TRUE(
        op->Forward(memory->data(), ones->data(), ones->data(), mean->data(), variance->data(), y->data())
            .ok());
    const Statistics s = StatisticsOf(x);
    const auto means = Get(*mean, {{channels}}), variances = Get(*variance, {{channels}});
    for (size_t c = 0; c < s.mean.size(); ++c) {
      EXPECT_NEAR(means[c], s.mean[c], 1e-5 * s.mean[c]);
      EXPECT_NEAR(variances[c], s.variance[c], 1e-5 * s.variance[c]);
    }
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

// gamma x / sqrt(mean(x^2) + epsilon)
Tensor RmsNormalize(const Tensor& x, const std::vector<double>& gamma) {
  Tensor y(x.shape);
  const int64_t width = x.shape[1];
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    double squares = 0;
    for (int64_t j = 0; j < width; ++j) squares += x.at(row * width + j) * x.at(row * width + j);
    const double deviation = std::sqrt(squares / static_cast<double>(width) + kEpsilon);
    for (int64_t j = 0; j < width; ++j)
      y.at(row * width + j) = x.at(row * width + j) / deviation * gamma[static_cast<size_t>(j)];
  }
  return y;
}

TEST_P(NormalizationConformance, RmsNormalization) {
  for (const int64_t width : {1, 7, 64, 333}) {
    const int64_t rows = 5;
    auto op = device().ops().MakeLayerNorm({.rows = rows,
                                            .width = width,
                                            .epsilon = static_cast<float>(kEpsilon),
                                            .center = false,
                                            .rms = true});
    ASSERT_TRUE(op.ok()) << op.status();
    Tensor x = RandomTensor({rows, width}, 1), gamma = RandomTensor({width}, 2);
    const Tensor dy = RandomTensor({rows, width}, 3);
    const auto x_memory = Put(x), gamma_memory = Put(gamma), dy_memory = Put(dy);
    const auto y = Poisoned(rows * width), dx = Poisoned(rows * width), dgamma = Poisoned(width);
    ASSERT_TRUE((*op)->Forward(x_memory->data(), gamma_memory->data(), nullptr, y->data()).ok());
    ExpectNear(Get(*y, {x.shape}), RmsNormalize(x, gamma.values).values, 16);
    ASSERT_TRUE((*op)
                    ->Backward(x_memory->data(), gamma_memory->data(), dy_memory->data(), dx->data(),
                               dgamma->data(), nullptr)
                    .ok());
    const auto loss = [&] { return Dot(RmsNormalize(x, gamma.values).values, dy.values); };
    ExpectGradient(Get(*dx, {x.shape}), x.values, loss);
    ExpectGradient(Get(*dgamma, {gamma.shape}), gamma.values, loss);
  }
}

TEST_P(NormalizationConformance, LayerNormalization) {
  for (const auto& [rows, width] :
       {std::pair{1, 4}, {5, 7}, {130, 3}, {2, 65}, {1500, 6}, {3, 4100}, {2, 8233}}) {
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

TEST_P(NormalizationConformance, DropoutKeepsTheMeanAndDependsOnlyOnTheSeed) {
  constexpr int64_t kCount = 100003;
  auto op = device().ops().MakeDropout({.input = {.shape = {kCount}}, .rate = 0.25f, .stream = 5}).value();
  const Tensor ones = [] {
    Tensor t({kCount});
    std::fill(t.values.begin(), t.values.end(), 1.0);
    return t;
  }();
  const auto x = Put(ones), y = Poisoned(kCount), dx = Poisoned(kCount);
  const auto run = [&](uint64_t seed) {
    EXPECT_TRUE(device().SeedRandom(seed, 0).ok());
    EXPECT_TRUE(op->Forward(x->data(), y->data()).ok());
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

TEST_P(NormalizationConformance, DropoutDrawsFromTheSeedThatWasSetBeforeItWasMade) {
  const Shape shape = {1003};
  const auto x = Put(RandomTensor(shape, 1)), y = Poisoned(1003);
  const auto drop = [&](kernels::Dropout& op) {
    EXPECT_TRUE(op.Forward(x->data(), y->data()).ok());
    return Get(*y, {shape});
  };
  const kernels::DropoutParams params = {.input = {.shape = shape}, .rate = 0.5f, .stream = 5};
  ASSERT_TRUE(device().SeedRandom(7, 0).ok());
  const auto first = device().ops().MakeDropout(params).value();
  const auto of_7 = drop(*first);
  ASSERT_TRUE(device().SeedRandom(8, 0).ok());
  const auto second = device().ops().MakeDropout(params).value();
  const auto of_8 = drop(*second);
  EXPECT_NE(of_8, of_7);
  EXPECT_EQ(drop(*first), of_8);
  ASSERT_TRUE(device().SeedRandom(7, 0).ok());
  EXPECT_EQ(drop(*first), of_7);
  EXPECT_EQ(drop(*second), of_7);
}

// Philox's words decide, four elements per block: the same elements are kept on every device, for every part
// of a batch.
TEST_P(NormalizationConformance, DropoutDrawsTheSameOnEveryDevice) {
  constexpr uint64_t kSeed = 0x123456789ABCDEF, kStream = 0xFEDCBA987654321;
  const Shape shape = {3, 67};
  auto op = device().ops().MakeDropout({.input = {.shape = shape}, .rate = 0.5f, .stream = kStream}).value();
  const Tensor x = Rounded(RandomTensor(shape, 1), kernels::ElementType::kFloat32);
  const auto x_memory = Put(x), y = Poisoned(shape.num_elements());
  constexpr uint64_t kKey = kSeed ^ kStream;
  for (const int64_t first_example : {0, 1, 2, 3, 4, 1000003}) {
    ASSERT_TRUE(device().SeedRandom(kSeed, first_example).ok());
    ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
    const auto got = Get(*y, {shape});
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t place = static_cast<size_t>(first_example) * 67 + i;
      const auto words = Philox4x32({static_cast<uint32_t>(place / 4), 0, 0, 0},
                                    {static_cast<uint32_t>(kKey), static_cast<uint32_t>(kKey >> 32)});
      ASSERT_EQ(got[i], words[place % 4] < 0x80000000u ? 0.0 : 2 * x.values[i])
          << "element " << i << " from example " << first_example << " on";
    }
  }
}

TEST_P(NormalizationConformance, PenaltiesOfManyElementsAtAnyAddress) {
  constexpr int64_t kCount = 20001;
  auto op = device().ops().MakeRegularizer(kCount, 0.5f, 0.25f).value();
  const Tensor values = RandomTensor({kCount + 1}, 1);
  const auto w = Put(values), gradient = Put(values);
  double expected = 0;
  std::vector<double> slopes = {values.values[0]};  // what stands before is not touched
  for (int64_t i = 1; i <= kCount; ++i) {
    const double v = static_cast<float>(values.at(i));
    expected += 0.5 * std::fabs(v) + 0.25 * v * v;
    slopes.push_back(v + (v > 0 ? 0.5 : -0.5) + 0.5 * v);
  }
  for (float* const to : {gradient->data() + 1, static_cast<float*>(nullptr)}) {
    double penalty = 0;
    ASSERT_TRUE(op->Run(w->data() + 1, to, &penalty).ok());
    ASSERT_TRUE(device().Synchronize().ok());
    EXPECT_NEAR(penalty, expected, 1e-12 * expected);
  }
  ExpectNear(Get(*gradient, {{kCount + 1}}), slopes, 4);
}

TEST_P(NormalizationConformance, PenaltiesAndTheirGradients) {
  auto op = device().ops().MakeRegularizer(3, 0.5f, 0.25f).value();
  const auto w = Put(std::vector<double>{2, -1, 0}), gradient = Put(std::vector<double>{1, 1, 1});
  double penalty = 1;  // overwritten
  ASSERT_TRUE(op->Run(w->data(), gradient->data(), &penalty).ok());
  ASSERT_TRUE(device().Synchronize().ok());
  EXPECT_EQ(penalty, 0.5 * 3 + 0.25 * 5);
  EXPECT_EQ(Get(*gradient, {{3}}), (std::vector<float>{1 + 0.5f + 1, 1 - 0.5f - 0.5f, 1}));
}

INSTANTIATE_CONFORMANCE(NormalizationConformance);

class NormalizationIn16Bits : public ConformanceTest {};

TEST_P(NormalizationIn16Bits, BatchNormalization) {
  for (const Shape& shape : {Shape{4, 3, 2, 16}, Shape{50, 7}, Shape{3000, 24}}) {
    for (bool frozen : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape.ToString() << (frozen ? " frozen" : ""));
      const TensorDesc desc = {.shape = shape, .layout = Layout::kRowMajor, .type = type()};
      auto op = device()
                    .ops()
                    .MakeBatchNorm({.input = desc, .epsilon = static_cast<float>(kEpsilon), .frozen = frozen})
                    .value();
      EXPECT_EQ(op->output(), desc);
      const int64_t channels = shape[shape.rank() - 1], floats = desc.num_floats();
      const auto count = static_cast<double>(shape.num_elements() / channels);
      const Tensor x = Rounded(RandomTensor(shape, 1), type()), dy = Rounded(RandomTensor(shape, 4), type());
      const Tensor gamma = RandomTensor({channels}, 2), beta = RandomTensor({channels}, 3);
      const auto x_memory = PutAs(x, type()), dy_memory = PutAs(dy, type());
      const auto gamma_memory = Put(gamma), beta_memory = Put(beta);
      const auto mean = Poisoned(channels), variance = Poisoned(channels), y = Poisoned(floats);
      const auto dx = Poisoned(floats), dgamma = Poisoned(channels), dbeta = Poisoned(channels);
      ASSERT_TRUE(op->Forward(x_memory->data(), gamma_memory->data(), beta_memory->data(), mean->data(),
                              variance->data(), y->data())
                      .ok());
      ASSERT_TRUE(op->Backward(x_memory->data(), gamma_memory->data(), mean->data(), variance->data(),
                               dy_memory->data(), dx->data(), dgamma->data(), dbeta->data())
                      .ok());
      const Statistics s = StatisticsOf(x);
      ExpectClose(Get(*mean, {{channels}}), s.mean, 1e-5);
      ExpectClose(Get(*variance, {{channels}}), s.variance, 1e-5);
      ExpectClose(GetAs(*y, shape, type()), Normalize(x, s, gamma.values, beta.values).values);
      const auto width = static_cast<size_t>(channels);
      const Tensor n = Normalize(x, s, std::vector<double>(width, 1.0), std::vector<double>(width, 0.0));
      std::vector<double> scale(width), shift(width), slopes(x.values.size());
      for (size_t i = 0; i < x.values.size(); ++i) {
        scale[i % width] += dy.values[i] * n.values[i];
        shift[i % width] += dy.values[i];
      }
      for (size_t i = 0; i < x.values.size(); ++i) {
        const size_t c = i % width;
        const double part = frozen ? 0 : (shift[c] + n.values[i] * scale[c]) / count;
        slopes[i] = gamma.values[c] / std::sqrt(s.variance[c] + kEpsilon) * (dy.values[i] - part);
      }
      ExpectClose(Get(*dgamma, {{channels}}), scale, 1e-4);
      ExpectClose(Get(*dbeta, {{channels}}), shift, 1e-4);
      ExpectClose(GetAs(*dx, shape, type()), slopes);
      ASSERT_TRUE(op->Infer(x_memory->data(), gamma_memory->data(), beta_memory->data(), mean->data(),
                            variance->data(), dx->data())
                      .ok());
      EXPECT_EQ(GetAs(*dx, shape, type()), GetAs(*y, shape, type()));
    }
  }
}

TEST_P(NormalizationIn16Bits, LayerNormalization) {
  for (const auto& [rows, width] : {std::pair{5, 7}, {600, 16}, {2, 4104}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << width);
    auto op = device()
                  .ops()
                  .MakeLayerNorm(
                      {.rows = rows, .width = width, .type = type(), .epsilon = static_cast<float>(kEpsilon)})
                  .value();
    const Shape shape = {rows, width};
    const int64_t floats = TensorDesc{.shape = shape, .type = type()}.num_floats();
    const Tensor x = Rounded(RandomTensor(shape, 1), type()), dy = Rounded(RandomTensor(shape, 4), type());
    Tensor gamma = RandomTensor({width}, 2), beta = RandomTensor({width}, 3);
    const auto x_memory = PutAs(x, type()), dy_memory = PutAs(dy, type());
    const auto gamma_memory = Put(gamma), beta_memory = Put(beta), y = Poisoned(floats),
               dx = Poisoned(floats);
    const auto dgamma = Poisoned(width), dbeta = Poisoned(width);
    ASSERT_TRUE(op->Forward(x_memory->data(), gamma_memory->data(), beta_memory->data(), y->data()).ok());
    ASSERT_TRUE(op->Backward(x_memory->data(), gamma_memory->data(), dy_memory->data(), dx->data(),
                             dgamma->data(), dbeta->data())
                    .ok());
    ExpectClose(GetAs(*y, shape, type()), LayerNormalize(x, gamma.values, beta.values).values);
    const Tensor n = LayerNormalize(x, std::vector<double>(gamma.values.size(), 1.0),
                                    std::vector<double>(gamma.values.size(), 0.0));
    Tensor scale({width}), shift({width}), slopes(shape);
    for (int64_t row = 0; row < rows; ++row) {
      double mean = 0, variance = 0, sum = 0, product = 0;
      for (int64_t j = 0; j < width; ++j) mean += x.at(row * width + j) / width;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t i = row * width + j;
        variance += std::pow(x.at(i) - mean, 2) / width;
        scale.at(j) += dy.at(i) * n.at(i);
        shift.at(j) += dy.at(i);
        sum += gamma.at(j) * dy.at(i) / width;
        product += gamma.at(j) * dy.at(i) * n.at(i) / width;
      }
      for (int64_t j = 0; j < width; ++j) {
        const int64_t i = row * width + j;
        slopes.at(i) = (gamma.at(j) * dy.at(i) - sum - n.at(i) * product) / std::sqrt(variance + kEpsilon);
      }
    }
    ExpectClose(Get(*dgamma, {{width}}), scale.values, 1e-4);
    ExpectClose(Get(*dbeta, {{width}}), shift.values, 1e-4);
    ExpectClose(GetAs(*dx, shape, type()), slopes.values);
  }
}

TEST_P(NormalizationIn16Bits, DropoutFellsWhatItFellsInFloats) {
  const Shape shape = {1003};
  const TensorDesc desc = {.shape = shape, .layout = Layout::kRowMajor, .type = type()};
  auto op = device().ops().MakeDropout({.input = desc, .rate = 0.5f, .stream = 7}).value();
  auto in_floats = device().ops().MakeDropout({.input = {shape}, .rate = 0.5f, .stream = 7}).value();
  const Tensor x = Rounded(RandomTensor(shape, 1), type());
  const auto x_memory = PutAs(x, type()), y = Poisoned(desc.num_floats()), dx = Poisoned(desc.num_floats());
  const auto floats = Put(x), expected = Poisoned(1003);
  ASSERT_TRUE(device().SeedRandom(3, 0).ok());
  ASSERT_TRUE(in_floats->Forward(floats->data(), expected->data()).ok());
  ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
  ASSERT_TRUE(device().SeedRandom(4, 0).ok());  // Backward is of the choice made
  ASSERT_TRUE(op->Backward(x_memory->data(), dx->data()).ok());
  EXPECT_EQ(GetAs(*y, shape, type()), Get(*expected, {shape}));  // doubling is exact
  EXPECT_EQ(GetAs(*dx, shape, type()), Get(*expected, {shape}));
}

INSTANTIATE_16_BIT_CONFORMANCE(NormalizationIn16Bits);

}  // namespace
}  // namespace cairn::conformance

// Samples of normal distributions against the definition in double, and the numbers of Keras.
#include <cmath>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using Values = std::vector<double>;

class GaussianSampleConformance : public ConformanceTest {
 protected:
  struct Result {
    std::vector<float> y, dmean, dlog_variance;
    double penalty = 0;
  };
  // `noise` and `dy` may be empty: none, and no backward pass.
  Result Run(float kl_factor, const Values& mean, const Values& log_variance, const Values& noise,
             const Values& dy) {
    const auto count = static_cast<int64_t>(mean.size());
    auto op = device().ops().MakeGaussianSample({.elements = count, .kl_factor = kl_factor}).value();
    const auto means = Put(mean), log_variances = Put(log_variance), noises = Put(noise), dys = Put(dy);
    const auto y = Poisoned(count), dmean = Poisoned(count), dlog_variance = Poisoned(count);
    const kernels::GaussianSample::Inputs inputs = {.mean = means->data(),
                                                    .log_variance = log_variances->data(),
                                                    .noise = noise.empty() ? nullptr : noises->data()};
    Result result;
    EXPECT_TRUE(op->Forward(inputs, y->data(), &result.penalty).ok());
    if (!dy.empty()) {
      EXPECT_TRUE(op->Backward(inputs, dys->data(), dmean->data(), dlog_variance->data()).ok());
    }
    EXPECT_TRUE(device().Synchronize().ok());
    result.y = Get(*y, {{count}});
    if (dy.empty()) return result;
    result.dmean = Get(*dmean, {{count}});
    result.dlog_variance = Get(*dlog_variance, {{count}});
    return result;
  }
};

void ExpectNear(const std::vector<float>& got, const Values& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-6 * (1 + std::fabs(expected[i]))) << what << " " << i;
}

// Keras 3.15 on PyTorch: y = m + ops.exp(0.5 * lv) * n; kl = -0.5 * (1 + lv - ops.square(m) - ops.exp(lv))
// ((y * dy).sum() + 0.25 * ops.sum(kl)).backward()
TEST_P(GaussianSampleConformance, NumbersAreThoseOfKeras) {
  const Result result = Run(0.25f, {0.5, -1, 0, 2}, {0, 0.5, -1, 1}, {1, -0.5, 2, 0.25}, {1, 2, -1, 0.5});
  ExpectNear(result.y, {1.5, -1.6420127153396606, 1.2130613327026367, 2.4121804237365723}, "y");
  EXPECT_NEAR(result.penalty, 0.810610294342041, 1e-6);
  ExpectNear(result.dmean, {1.125, 1.75, -1, 1}, "dmean");
  ExpectNear(result.dlog_variance, {0.5, -0.5609225630760193, -0.6855457425117493, 0.31783029437065125},
             "dlog_variance");
}

TEST_P(GaussianSampleConformance, ManyElements) {
  constexpr int64_t kCount = 20001;
  const auto floats = [](int seed) {
    Values values = RandomTensor({kCount}, static_cast<uint64_t>(seed)).values;
    for (double& value : values) value = static_cast<float>(3 * value);
    return values;
  };
  const Values mean = floats(1), log_variance = floats(2), noise = floats(3), dy = floats(4);
  const Result result = Run(0.5f, mean, log_variance, noise, dy);
  Values y, dmean, dlog_variance;
  double divergence = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    const double deviation = std::exp(log_variance[i] / 2), variance = deviation * deviation;
    y.push_back(mean[i] + deviation * noise[i]);
    divergence += (variance - log_variance[i] - 1 + mean[i] * mean[i]) / 2;
    dmean.push_back(dy[i] + 0.5 * mean[i]);
    dlog_variance.push_back(dy[i] * noise[i] * deviation / 2 + 0.25 * (variance - 1));
  }
  EXPECT_NEAR(result.penalty, 0.5 * divergence, 1e-7 * divergence);
  ExpectNear(result.y, y, "y");
  ExpectNear(result.dmean, dmean, "dmean");
  ExpectNear(result.dlog_variance, dlog_variance, "dlog_variance");
}

TEST_P(GaussianSampleConformance, WithoutNoiseTheSampleIsTheMean) {
  const Result result = Run(1, {0.5, -1}, {0, 2}, {}, {});
  EXPECT_EQ(result.y, (std::vector<float>{0.5f, -1}));
  EXPECT_NEAR(result.penalty, (0.25 + 1 + std::exp(2) - 3) / 2, 1e-6);
}

TEST_P(GaussianSampleConformance, ADivergenceWithoutWeightAddsNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Result result = Run(0, {infinity, -1}, {0, 0}, {0, 1}, {1, 2});
  EXPECT_EQ(result.penalty, 0);
  EXPECT_EQ(result.dmean, (std::vector<float>{1, 2}));
}

TEST_P(GaussianSampleConformance, InvalidParametersAreRefused) {
  for (const kernels::GaussianSampleParams& params :
       {kernels::GaussianSampleParams{.elements = 0}, {.elements = 1, .kl_factor = -1}}) {
    EXPECT_EQ(device().ops().MakeGaussianSample(params).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

INSTANTIATE_CONFORMANCE(GaussianSampleConformance);

}  // namespace
}  // namespace cairn::conformance

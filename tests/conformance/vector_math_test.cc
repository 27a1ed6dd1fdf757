// The exponentials of the CPU's loops, over the whole range of floats, against the standard library in double
// precision.
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/device.h"
#include "kernels/ops.h"
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Activation;
using kernels::ActivationParams;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every 9973rd float of both signs, including denormal ones, and the ends of the range.
std::vector<float> FloatsOfAllSizes() {
  std::vector<float> floats = {0.0f,
                               -0.0f,
                               kInfinity,
                               -kInfinity,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest()};
  for (uint32_t bits = 0; bits < 0x7F800000; bits += 9973) {
    floats.push_back(std::bit_cast<float>(bits));
    floats.push_back(-floats.back());
  }
  // Where exponentials are not 0, 1 or infinite.
  for (float x = -110; x < 110; x += 0.00137f) floats.push_back(x);
  return floats;
}

// The unit in the last place of a float as large as `value`.
double Ulp(double value) {
  const auto size = static_cast<float>(std::fabs(value));
  if (!std::isfinite(size)) return std::ldexp(1.0, 104);
  return static_cast<double>(std::nextafter(size, kInfinity)) - static_cast<double>(size);
}

struct Function {
  const char* name;
  ActivationParams params;
  double (*definition)(double x);
  double (*derivative)(double x);
  double ulps;                   // of the value, at most
  double ulps_of_derivative;     // of the larger of the derivative and 1
  double ulps_of_x = kInfinity;  // of the value, but counted in those of x
  float largest_x = kInfinity;   // beyond, the definition itself is inf * 0
};

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double Cdf(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2;
}
double Twice(double x) {  // of gelu's approximation: twice tanh's argument
  return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}
constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

const Function kFunctions[] = {
    {"exp",
     {.kind = Activation::kExp},
     [](double x) { return std::exp(x); },
     [](double x) { return std::exp(x); },
     1,
     kInfinity},  // the derivative is the value, and overflows as it does
    {"elu",
     {.kind = Activation::kElu, .slope = 0.5f},
     [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); },
     [](double x) { return x > 0 ? 1.0 : 0.5 * std::exp(x); },
     1,
     1},
    {"selu",
     {.kind = Activation::kSelu},
     [](double x) { return kSeluScale * (x > 0 ? x : kSeluAlpha * std::expm1(x)); },
     [](double x) { return kSeluScale * (x > 0 ? 1.0 : kSeluAlpha * std::exp(x)); },
     2,
     2},
    {"sigmoid",
     {.kind = Activation::kSigmoid},
     Sigmoid,
     [](double x) { return Sigmoid(x) * Sigmoid(-x); },
     2.5,
     1},
    {"tanh",
     {.kind = Activation::kTanh},
     [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); },
     3,
     3},
    {"softplus",
     {.kind = Activation::kSoftplus},
     [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); },
     Sigmoid,
     2,
     1},
    // Far below 0 these are x times what has few digits: a denormal number, or a power whose exponent was
    // rounded.
    {"silu",
     {.kind = Activation::kSilu},
     [](double x) { return x * Sigmoid(x); },
     [](double x) { return Sigmoid(x) * (1 + x * Sigmoid(-x)); },
     kInfinity,
     3,
     3,
     1e30f},
    {"gelu",
     {.kind = Activation::kGelu},
     [](double x) { return x * Cdf(x); },
     [](double x) { return Cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI); },
     kInfinity,
     3,
     2,
     1e18f},
    {"gelu_tanh",
     {.kind = Activation::kGeluTanh},
     [](double x) { return x * Sigmoid(Twice(x)); },
     [](double x) {
       const double s = Sigmoid(Twice(x));
       return s + x * s * Sigmoid(-Twice(x)) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
     },
     kInfinity,
     4,
     3,
     1e12f},
};

TEST(VectorMath, FunctionsAreAccurateToAFewUlpsOverTheWholeRange) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const std::vector<float> x = FloatsOfAllSizes(), ones(x.size(), 1.0f);
  std::vector<float> y(x.size()), dx(x.size());
  for (const Function& f : kFunctions) {
    const auto op =
        device->ops().MakeActivation({.shape = {static_cast<int64_t>(x.size())}}, f.params).value();
    ASSERT_TRUE(op->Forward(x.data(), y.data()).ok());
    ASSERT_TRUE(op->Backward(x.data(), y.data(), ones.data(), dx.data()).ok());
    double worst = 0, worst_in_x = 0, worst_of_derivative = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(y[i]) && std::isnan(dx[i])) << f.name;
        continue;
      }
      if (std::fabs(x[i]) > f.largest_x) continue;
      const double value = f.definition(x[i]), slope = f.derivative(x[i]);
      const double slope_error = std::fabs(static_cast<double>(dx[i]) - slope);
      worst_of_derivative = std::fmax(worst_of_derivative, slope_error / Ulp(std::fmax(1, std::fabs(slope))));
      if (std::fabs(value) > double{std::numeric_limits<float>::max()}) {
        ASSERT_EQ(y[i], static_cast<float>(value)) << f.name << " of " << x[i];
        continue;
      }
      const double error = std::fabs(static_cast<double>(y[i]) - value);
      worst = std::fmax(worst, error / Ulp(value));
      worst_in_x = std::fmax(worst_in_x, error / Ulp(x[i]));
      ASSERT_LE(worst, f.ulps) << f.name << " of " << x[i] << " is " << y[i] << " for " << value;
      ASSERT_TRUE(f.ulps_of_x == kInfinity || worst_in_x <= f.ulps_of_x) << f.name << " of " << x[i];
      ASSERT_LE(worst_of_derivative, f.ulps_of_derivative) << f.name << "' of " << x[i] << " is " << dx[i];
    }
    RecordProperty(f.name,
                   absl::StrCat(worst, " ulp, of x ", worst_in_x, ", derivative ", worst_of_derivative));
  }
}

}  // namespace
}  // namespace cairn::conformance

#include "nn/layer/initializer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using Distribution = InitializerSpec::Distribution;
using Fan = InitializerSpec::Fan;

// The standard deviation of a standard normal distribution truncated to [-2, 2]
// (scipy.stats.truncnorm.std(-2, 2)), which VarianceScaling corrects for.
constexpr double kTruncatedStddev = 0.87962566103423978;

// The options in an initializer's config other than the seed, with Keras' defaults.
struct Settings {
  std::map<std::string, double> numbers{};
  std::map<std::string, std::string> words{};
};

struct Row {
  const char* class_name;
  const char* short_name;
  Settings defaults;
  absl::StatusOr<InitializerSpec> (*make)(const Settings& settings);
};

template <int kScale, Fan kFan, Distribution kDistribution>
absl::StatusOr<InitializerSpec> Scaled(const Settings&) {
  return InitializerSpec{.distribution = kDistribution, .fan = kFan, .spread = kScale};
}

absl::StatusOr<InitializerSpec> VarianceScaling(const Settings& settings) {
  const double scale = settings.numbers.at("scale");
  if (!(scale > 0)) return absl::InvalidArgumentError(absl::StrCat("scale ", scale, " must be above 0"));
  const std::map<std::string, Fan> modes = {
      {"fan_in", Fan::kIn}, {"fan_out", Fan::kOut}, {"fan_avg", Fan::kAverage}};
  const std::map<std::string, Distribution> distributions = {
      {"normal", Distribution::kTruncatedNormal},  // as in Keras
      {"truncated_normal", Distribution::kTruncatedNormal},
      {"untruncated_normal", Distribution::kNormal},
      {"uniform", Distribution::kUniform}};
  const auto mode = modes.find(settings.words.at("mode"));
  if (mode == modes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mode \"", settings.words.at("mode"), "\" is not one of fan_in, fan_out, fan_avg"));
  }
  const auto distribution = distributions.find(absl::AsciiStrToLower(settings.words.at("distribution")));
  if (distribution == distributions.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("distribution \"", settings.words.at("distribution"),
                     "\" is not one of truncated_normal, untruncated_normal, uniform"));
  }
  return InitializerSpec{.distribution = distribution->second, .fan = mode->second, .spread = scale};
}

absl::StatusOr<InitializerSpec> Constant(const Settings& settings) {
  return InitializerSpec{.center = settings.numbers.at("value")};
}

absl::StatusOr<InitializerSpec> Uniform(const Settings& settings) {
  const double low = settings.numbers.at("minval"), high = settings.numbers.at("maxval");
  if (low > high) return absl::InvalidArgumentError(absl::StrCat("minval ", low, " is above maxval ", high));
  return InitializerSpec{
      .distribution = Distribution::kUniform, .center = (low + high) / 2, .spread = (high - low) / 2};
}

template <Distribution kDistribution>
absl::StatusOr<InitializerSpec> Normal(const Settings& settings) {
  const double stddev = settings.numbers.at("stddev");
  if (stddev < 0) return absl::InvalidArgumentError(absl::StrCat("stddev ", stddev, " is negative"));
  return InitializerSpec{
      .distribution = kDistribution, .center = settings.numbers.at("mean"), .spread = stddev};
}

template <Distribution kDistribution>
absl::StatusOr<InitializerSpec> Matrix(const Settings& settings) {
  return InitializerSpec{.distribution = kDistribution, .spread = settings.numbers.at("gain")};
}

const std::vector<Row>& Table() {
  constexpr auto kUniform = Distribution::kUniform;
  constexpr auto kTruncated = Distribution::kTruncatedNormal;
  static const auto* const table = new std::vector<Row>{
      {"GlorotUniform", "glorot_uniform", {}, Scaled<1, Fan::kAverage, kUniform>},
      {"GlorotNormal", "glorot_normal", {}, Scaled<1, Fan::kAverage, kTruncated>},
      {"HeUniform", "he_uniform", {}, Scaled<2, Fan::kIn, kUniform>},
      {"HeNormal", "he_normal", {}, Scaled<2, Fan::kIn, kTruncated>},
      {"LecunUniform", "lecun_uniform", {}, Scaled<1, Fan::kIn, kUniform>},
      {"LecunNormal", "lecun_normal", {}, Scaled<1, Fan::kIn, kTruncated>},
      {"VarianceScaling",
       "variance_scaling",
       {{{"scale", 1}}, {{"mode", "fan_in"}, {"distribution", "truncated_normal"}}},
       VarianceScaling},
      {"Zeros", "zeros", {{{"value", 0}}}, Constant},
      {"Ones", "ones", {{{"value", 1}}}, Constant},
      {"Constant", "constant", {{{"value", 0}}}, Constant},
      {"RandomUniform", "random_uniform", {{{"minval", -0.05}, {"maxval", 0.05}}}, Uniform},
      {"RandomNormal", "random_normal", {{{"mean", 0}, {"stddev", 0.05}}}, Normal<Distribution::kNormal>},
      {"TruncatedNormal", "truncated_normal", {{{"mean", 0}, {"stddev", 0.05}}}, Normal<kTruncated>},
      {"Orthogonal", "orthogonal", {{{"gain", 1}}}, Matrix<Distribution::kOrthogonal>},
      {"Identity", "identity", {{{"gain", 1}}}, Matrix<Distribution::kIdentity>},
  };
  return *table;
}

std::string SupportedNames() {
  return absl::StrJoin(Table(), ", ",
                       [](std::string* out, const Row& row) { absl::StrAppend(out, row.class_name); });
}

struct Fans {
  double in, out;
};

Fans FansOf(const Shape& shape) {
  if (shape.rank() == 0) return {1, 1};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double receptive_field = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) receptive_field *= static_cast<double>(shape[axis]);
  return {receptive_field * static_cast<double>(shape[shape.rank() - 2]),
          receptive_field * static_cast<double>(shape[shape.rank() - 1])};
}

float TruncatedNormal(Random& random) {
  float value = random.NextNormal();
  while (std::fabs(value) > 2.0f) value = random.NextNormal();
  return value;
}

// Makes the columns of `a` [rows, columns], row-major, orthonormal by modified Gram-Schmidt. The result is
// the Q of the QR decomposition whose R has a positive diagonal. rows >= columns.
void Orthonormalise(size_t rows, size_t columns, absl::Span<double> a) {
  std::vector<double> products(columns);
  for (size_t k = 0; k < columns; ++k) {
    double square = 0;
    for (size_t r = 0; r < rows; ++r) square += a[r * columns + k] * a[r * columns + k];
    const double norm = std::sqrt(square);
    std::fill(products.begin(), products.end(), 0.0);
    for (size_t r = 0; r < rows; ++r) {
      double* row = &a[r * columns];
      row[k] /= norm;
      for (size_t c = k + 1; c < columns; ++c) products[c] += row[k] * row[c];
    }
    for (size_t r = 0; r < rows; ++r) {
      double* row = &a[r * columns];
      for (size_t c = k + 1; c < columns; ++c) row[c] -= row[k] * products[c];
    }
  }
}

// Fills `values` as Keras does, with the factor Q of the QR decomposition of a tall matrix of normally
// distributed numbers, where R has a positive diagonal. Q is transposed if the variable's matrix is wide.
void FillOrthogonal(const Shape& shape, double gain, Random& random, absl::Span<float> values) {
  const size_t columns = static_cast<size_t>(shape[shape.rank() - 1]);
  const size_t rows = values.size() / columns;
  const size_t tall = std::max(rows, columns), narrow = std::min(rows, columns);
  std::vector<double> q(values.size());
  for (double& value : q) value = random.NextNormal();
  Orthonormalise(tall, narrow, absl::MakeSpan(q));
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const double value = rows >= columns ? q[r * narrow + c] : q[c * narrow + r];
      values[r * columns + c] = static_cast<float>(gain * value);
    }
  }
}

}  // namespace

absl::StatusOr<InitializerSpec> ParseInitializer(const json& document) {
  const bool is_object = document.is_object() && document.contains("class_name");
  const json& name = is_object ? document["class_name"] : document;
  if (!name.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an initializer's name or an object with class_name, got ", document.dump()));
  }
  const auto row = std::find_if(Table().begin(), Table().end(), [&](const Row& candidate) {
    return name == candidate.class_name || name == candidate.short_name ||
           absl::StrCat("random_", name.get<std::string>()) == candidate.short_name;  // "uniform", "normal"
  });
  if (row == Table().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown initializer ", name.dump(), "; supported: ", SupportedNames()));
  }
  if (const absl::Status own = CheckIsOfKeras(document); !own.ok())
    return Annotate(own, absl::StrCat("initializer ", name.dump()));
  Settings settings = row->defaults;
  std::optional<uint64_t> seed;
  const json config = is_object ? document.value("config", json::object()) : json::object();
  if (!config.is_object() && !config.is_null()) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer ", row->class_name, ": config: expected an object, got ", config.dump()));
  }
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    if (key == "seed" && value.is_number_integer()) {
      seed = value.get<uint64_t>();
    } else if (settings.numbers.count(key) > 0 && value.is_number()) {
      settings.numbers[key] = value.get<double>();
    } else if (settings.words.count(key) > 0 && value.is_string()) {
      settings.words[key] = value.get<std::string>();
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("initializer ", row->class_name, ": ", key, " ", value.dump(), " is not supported"));
    }
  }
  auto spec = row->make(settings);
  if (!spec.ok()) return Annotate(spec.status(), absl::StrCat("initializer ", row->class_name));
  spec->seed = seed;
  return spec;
}

InitializerSpec ResolveFan(const InitializerSpec& spec, const Shape& shape) {
  if (spec.fan == Fan::kNone) return spec;
  const Fans fans = FansOf(shape);
  const double fan = spec.fan == Fan::kIn    ? fans.in
                     : spec.fan == Fan::kOut ? fans.out
                                             : (fans.in + fans.out) / 2;
  const double variance = spec.spread / std::max(1.0, fan);
  InitializerSpec resolved = spec;
  resolved.fan = Fan::kNone;
  resolved.spread = spec.distribution == Distribution::kUniform ? std::sqrt(3 * variance)
                    : spec.distribution == Distribution::kTruncatedNormal
                        ? std::sqrt(variance) / kTruncatedStddev
                        : std::sqrt(variance);
  return resolved;
}

absl::Status CheckShape(const InitializerSpec& spec, const Shape& shape) {
  if (spec.distribution == Distribution::kOrthogonal && shape.rank() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer Orthogonal needs a shape of rank 2 or more, not ", shape.ToString()));
  }
  if (spec.distribution == Distribution::kIdentity && shape.rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer Identity needs a shape of rank 2, not ", shape.ToString()));
  }
  return absl::OkStatus();
}

namespace {

void Draw(const InitializerSpec& spec, const Shape& shape, uint64_t seed, absl::string_view variable,
          absl::Span<float> values) {
  const InitializerSpec resolved = ResolveFan(spec, shape);
  const auto center = static_cast<float>(resolved.center), spread = static_cast<float>(resolved.spread);
  Random random(resolved.seed.value_or(seed), absl::StrCat("init/", variable));
  const auto fill = [&](auto draw) { std::generate(values.begin(), values.end(), draw); };
  switch (resolved.distribution) {
    case Distribution::kConstant:
      return fill([&] { return center; });
    case Distribution::kUniform:
      return fill([&] { return center + spread * (2 * random.NextUniform() - 1); });
    case Distribution::kNormal:
      return fill([&] { return center + spread * random.NextNormal(); });
    case Distribution::kTruncatedNormal:
      return fill([&] { return center + spread * TruncatedNormal(random); });
    case Distribution::kOrthogonal:
      return FillOrthogonal(shape, resolved.spread, random, values);
    case Distribution::kIdentity:
      for (size_t i = 0, row = static_cast<size_t>(shape[1]); i < values.size(); ++i) {
        values[i] = i / row == i % row ? spread : 0;
      }
      return;
  }
}

}  // namespace

void Initialize(const InitializerSpec& spec, const Shape& shape, uint64_t seed, absl::string_view variable,
                absl::Span<float> values) {
  Draw(spec, shape, seed, variable, values);
  std::fill(values.begin() + spec.ones_begin, values.begin() + spec.ones_end, 1.0f);
}

}  // namespace cairn::nn

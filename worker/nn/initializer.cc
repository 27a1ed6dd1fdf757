#include "worker/nn/initializer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using nlohmann::json;
using Distribution = InitializerSpec::Distribution;
using Fan = InitializerSpec::Fan;

// The standard deviation of a standard normal truncated to [-2, 2] (scipy.stats.truncnorm.std(-2, 2)), by
// which VarianceScaling corrects.
constexpr double kTruncatedStddev = 0.87962566103423978;

// The numbers that an initializer's config may hold, with Keras' defaults: the row's defaults, overwritten.
using Numbers = std::map<std::string, double>;

struct Row {
  const char* class_name;
  const char* short_name;
  Numbers defaults;
  InitializerSpec (*make)(const Numbers& numbers);
};

template <Distribution kDistribution, Fan kFan>
InitializerSpec Scaled(const Numbers& numbers) {
  return {.distribution = kDistribution, .fan = kFan, .spread = numbers.at("scale")};
}

InitializerSpec Constant(const Numbers& numbers) {
  return {.center = numbers.at("value")};
}

InitializerSpec Uniform(const Numbers& numbers) {
  const double low = numbers.at("minval"), high = numbers.at("maxval");
  return {.distribution = Distribution::kUniform, .center = (low + high) / 2, .spread = (high - low) / 2};
}

template <Distribution kDistribution>
InitializerSpec Normal(const Numbers& numbers) {
  return {.distribution = kDistribution, .center = numbers.at("mean"), .spread = numbers.at("stddev")};
}

const std::vector<Row>& Table() {
  constexpr auto kUniform = Distribution::kUniform;
  constexpr auto kTruncated = Distribution::kTruncatedNormal;
  static const auto* const table = new std::vector<Row>{
      {"GlorotUniform", "glorot_uniform", {{"scale", 1}}, Scaled<kUniform, Fan::kAverage>},
      {"GlorotNormal", "glorot_normal", {{"scale", 1}}, Scaled<kTruncated, Fan::kAverage>},
      {"HeUniform", "he_uniform", {{"scale", 2}}, Scaled<kUniform, Fan::kIn>},
      {"HeNormal", "he_normal", {{"scale", 2}}, Scaled<kTruncated, Fan::kIn>},
      {"LecunUniform", "lecun_uniform", {{"scale", 1}}, Scaled<kUniform, Fan::kIn>},
      {"LecunNormal", "lecun_normal", {{"scale", 1}}, Scaled<kTruncated, Fan::kIn>},
      {"Zeros", "zeros", {{"value", 0}}, Constant},
      {"Ones", "ones", {{"value", 1}}, Constant},
      {"Constant", "constant", {{"value", 0}}, Constant},
      {"RandomUniform", "random_uniform", {{"minval", -0.05}, {"maxval", 0.05}}, Uniform},
      {"RandomNormal", "random_normal", {{"mean", 0}, {"stddev", 0.05}}, Normal<Distribution::kNormal>},
      {"TruncatedNormal", "truncated_normal", {{"mean", 0}, {"stddev", 0.05}}, Normal<kTruncated>},
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

}  // namespace

absl::StatusOr<InitializerSpec> ParseInitializer(const json& document) {
  const bool is_object = document.is_object() && document.contains("class_name");
  const json& name = is_object ? document["class_name"] : document;
  if (!name.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an initializer's name or an object with class_name, got ", document.dump()));
  }
  const auto row = std::find_if(Table().begin(), Table().end(), [&](const Row& candidate) {
    return name == candidate.class_name || name == candidate.short_name;
  });
  if (row == Table().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown initializer ", name.dump(), "; supported: ", SupportedNames()));
  }
  Numbers numbers = row->defaults;
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
    } else if (numbers.count(key) > 0 && key != "scale" && value.is_number()) {
      numbers[key] = value.get<double>();
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("initializer ", row->class_name, ": ", key, " ", value.dump(), " is not supported"));
    }
  }
  InitializerSpec spec = row->make(numbers);
  if (spec.spread < 0) {
    return absl::InvalidArgumentError(absl::StrCat("initializer ", row->class_name, ": negative spread"));
  }
  spec.seed = seed;
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

void Initialize(const InitializerSpec& spec, const Shape& shape, uint64_t seed, absl::string_view variable,
                absl::Span<float> values) {
  const InitializerSpec resolved = ResolveFan(spec, shape);
  const auto center = static_cast<float>(resolved.center), spread = static_cast<float>(resolved.spread);
  Random random(resolved.seed.value_or(seed), absl::StrCat("init/", variable));
  for (float& value : values) {
    switch (resolved.distribution) {
      case Distribution::kConstant:
        value = center;
        break;
      case Distribution::kUniform:
        value = center + spread * (2 * random.NextUniform() - 1);
        break;
      case Distribution::kNormal:
        value = center + spread * random.NextNormal();
        break;
      case Distribution::kTruncatedNormal:
        value = center + spread * TruncatedNormal(random);
        break;
    }
  }
}

}  // namespace cairn::nn

#include "embedding/initializers/row_distribution.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::embedding {
namespace {

using Kind = RowDistribution::Kind;

// The standard deviation of a standard normal distribution truncated to [-2, 2]
// (scipy.stats.truncnorm.std(-2, 2)), which VarianceScaling corrects for.
constexpr double kTruncatedStddev = 0.87962566103423978;

// The numbers and words of a config, with defaults.
using Numbers = std::map<std::string, double>;
using Words = std::map<std::string, std::string>;
struct InitializerSettings {
  Numbers numbers{};
  Words words{};
  TableShape shape{};
};

struct InitializerRow {
  const char* class_name;
  const char* short_name;
  Numbers numbers;
  Words words;
  absl::StatusOr<RowDistribution> (*make)(const InitializerSettings& settings);
};

absl::StatusOr<RowDistribution> MakeConstant(const InitializerSettings& settings) {
  return RowDistribution{.kind = Kind::kConstant, .center = settings.numbers.at("value")};
}

absl::StatusOr<RowDistribution> MakeUniform(const InitializerSettings& settings) {
  const double low = settings.numbers.at("minval"), high = settings.numbers.at("maxval");
  if (low > high) return absl::InvalidArgumentError(absl::StrCat("minval ", low, " is above maxval ", high));
  return RowDistribution{.kind = Kind::kUniform, .center = (low + high) / 2, .spread = (high - low) / 2};
}

template <Kind kKind>
absl::StatusOr<RowDistribution> MakeNormal(const InitializerSettings& settings) {
  const double stddev = settings.numbers.at("stddev");
  if (stddev < 0) return absl::InvalidArgumentError(absl::StrCat("stddev ", stddev, " is negative"));
  return RowDistribution{.kind = kKind, .center = settings.numbers.at("mean"), .spread = stddev};
}

absl::StatusOr<double> FanOf(const std::string& mode, const TableShape& shape) {
  if (mode == "fan_out") return shape.dim;
  if (mode != "fan_in" && mode != "fan_avg") {
    return absl::InvalidArgumentError(
        absl::StrCat("mode \"", mode, "\" is not one of fan_in, fan_out, fan_avg"));
  }
  if (shape.vocabulary_size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("its mode ", mode,
                     " depends on the number of rows, and a dynamic table has no fixed number; use "
                     "RandomUniform, RandomNormal or TruncatedNormal, or set vocabulary_size"));
  }
  const auto rows = static_cast<double>(shape.vocabulary_size);
  return mode == "fan_in" ? rows : (rows + shape.dim) / 2;
}

absl::StatusOr<RowDistribution> MakeVarianceScaling(const InitializerSettings& settings) {
  const double scale = settings.numbers.at("scale");
  if (!(scale > 0)) return absl::InvalidArgumentError(absl::StrCat("scale ", scale, " must be above 0"));
  const std::string distribution = absl::AsciiStrToLower(settings.words.at("distribution"));
  CAIRN_ASSIGN_OR_RETURN(const double fan, FanOf(settings.words.at("mode"), settings.shape));
  const double variance = scale / std::max(1.0, fan);
  if (distribution == "uniform")
    return RowDistribution{.kind = Kind::kUniform, .spread = std::sqrt(3 * variance)};
  if (distribution == "untruncated_normal") {
    return RowDistribution{.kind = Kind::kNormal, .spread = std::sqrt(variance)};
  }
  if (distribution == "truncated_normal" || distribution == "normal") {  // equal in Keras
    return RowDistribution{.kind = Kind::kTruncatedNormal, .spread = std::sqrt(variance) / kTruncatedStddev};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("distribution \"", settings.words.at("distribution"),
                   "\" is not one of truncated_normal, untruncated_normal, uniform"));
}

// An initializer that is VarianceScaling with a fixed scale, mode and distribution.
template <int kScale, bool kAverage, bool kUniform>
absl::StatusOr<RowDistribution> MakeScaled(const InitializerSettings& settings) {
  return MakeVarianceScaling({.numbers = {{"scale", kScale}},
                              .words = {{"mode", kAverage ? "fan_avg" : "fan_in"},
                                        {"distribution", kUniform ? "uniform" : "truncated_normal"}},
                              .shape = settings.shape});
}

const std::vector<InitializerRow>& Initializers() {
  static const auto* const table = new std::vector<InitializerRow>{
      {"Zeros", "zeros", {{"value", 0}}, {}, MakeConstant},
      {"Ones", "ones", {{"value", 1}}, {}, MakeConstant},
      {"Constant", "constant", {{"value", 0}}, {}, MakeConstant},
      {"RandomUniform", "random_uniform", {{"minval", -0.05}, {"maxval", 0.05}}, {}, MakeUniform},
      {"RandomNormal", "random_normal", {{"mean", 0}, {"stddev", 0.05}}, {}, MakeNormal<Kind::kNormal>},
      {"TruncatedNormal",
       "truncated_normal",
       {{"mean", 0}, {"stddev", 0.05}},
       {},
       MakeNormal<Kind::kTruncatedNormal>},
      {"VarianceScaling",
       "variance_scaling",
       {{"scale", 1}},
       {{"mode", "fan_in"}, {"distribution", "truncated_normal"}},
       MakeVarianceScaling},
      {"GlorotUniform", "glorot_uniform", {}, {}, MakeScaled<1, true, true>},
      {"GlorotNormal", "glorot_normal", {}, {}, MakeScaled<1, true, false>},
      {"HeUniform", "he_uniform", {}, {}, MakeScaled<2, false, true>},
      {"HeNormal", "he_normal", {}, {}, MakeScaled<2, false, false>},
      {"LecunUniform", "lecun_uniform", {}, {}, MakeScaled<1, false, true>},
      {"LecunNormal", "lecun_normal", {}, {}, MakeScaled<1, false, false>},
  };
  return *table;
}

// Replaces defaults of `settings` by the values of `config`.
absl::Status TakeValues(const InitializerConfig& config, InitializerSettings& settings) {
  for (const auto& [key, value] : config.numbers) {
    const auto found = settings.numbers.find(key);
    if (found == settings.numbers.end()) {
      return absl::InvalidArgumentError(absl::StrCat(key, " ", value, " is not supported"));
    }
    if (!std::isfinite(static_cast<float>(value))) {
      return absl::InvalidArgumentError(absl::StrCat(key, " ", value, " is not a finite number"));
    }
    found->second = value;
  }
  for (const auto& [key, value] : config.words) {
    const auto found = settings.words.find(key);
    if (found == settings.words.end()) {
      return absl::InvalidArgumentError(absl::StrCat(key, " \"", value, "\" is not supported"));
    }
    found->second = value;
  }
  return absl::OkStatus();
}

absl::StatusOr<RowDistribution> Resolve(const InitializerRow& row, const InitializerConfig& config,
                                        const TableShape& shape) {
  InitializerSettings settings{row.numbers, row.words, shape};
  CAIRN_RETURN_IF_ERROR(TakeValues(config, settings));
  return row.make(settings);
}

}  // namespace

absl::StatusOr<RowDistribution> ResolveInitializer(const InitializerConfig& config, const TableShape& shape) {
  for (const InitializerRow& row : Initializers()) {
    if (!absl::EqualsIgnoreCase(config.name, row.class_name) && config.name != row.short_name &&
        absl::StrCat("random_", config.name) != row.short_name) {
      continue;
    }
    auto distribution = Resolve(row, config, shape);
    if (!distribution.ok())
      return Annotate(distribution.status(), absl::StrCat("initializer ", row.class_name));
    return distribution;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown initializer '", config.name,
      "'; supported: ", absl::StrJoin(Initializers(), ", ", [](std::string* out, const InitializerRow& row) {
        absl::StrAppend(out, row.class_name);
      })));
}

}  // namespace cairn::embedding

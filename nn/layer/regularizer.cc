#include "nn/layer/regularizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/status.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// An object of Keras: {"class_name": ..., "config": {...}}, or only a name.
struct NamedConfig {
  std::string class_name;
  std::string kind;  // the class name in lower case, without underscores
  json config = json::object();
  bool named_only = false;
};

absl::StatusOr<NamedConfig> ParseNamed(const json& value) {
  if (const absl::Status own = CheckIsOfKeras(value); !own.ok()) return own;
  NamedConfig object;
  if (value.is_object() && value.contains("class_name") && value["class_name"].is_string()) {
    object.class_name = value["class_name"].get<std::string>();
    if (const json config = value.value("config", json()); !config.is_null()) object.config = config;
  } else {
    object.named_only = true;
    object.class_name = value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (!object.config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(object.class_name, ": expected an object, got ", object.config.dump()));
  }
  object.kind = absl::StrReplaceAll(absl::AsciiStrToLower(object.class_name), {{"_", ""}});
  return object;
}

absl::Status NotSupported(const NamedConfig& object, const std::string& key, const json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(object.class_name, ": ", key, ": ", value.dump(), " is not supported"));
}

// A finite number from 0 up that a float can hold.
bool IsStrength(const json& value) {
  return value.is_number() && value >= 0 && std::isfinite(value.get<float>());
}

absl::StatusOr<RegularizerSpec> ParseOrthogonal(const NamedConfig& object) {
  RegularizerSpec spec = {.orthogonal = 0.01f};  // as in Keras
  for (const auto& [key, value] : object.config.items()) {
    if (key == "name" || value.is_null()) continue;
    if (key == "factor" && IsStrength(value)) {
      spec.orthogonal = value.get<float>();
    } else if (key == "mode" && (value == "rows" || value == "columns")) {
      spec.of_columns = value == "columns";
    } else {
      return NotSupported(object, key, value);
    }
  }
  return spec;
}

// An axis or a list of axes.
absl::StatusOr<std::vector<int>> ParseAxes(const NamedConfig& object, const json& value) {
  std::vector<int> axes;
  for (const json& axis : value.is_array() ? value : json::array({value})) {
    constexpr int kLimit = std::numeric_limits<int>::max();
    // JSON compares an unsigned number with a signed one as if both were signed.
    const bool too_large = axis.is_number_unsigned() && axis.get<uint64_t>() > uint64_t{kLimit};
    if (!axis.is_number_integer() || too_large || axis < -kLimit || axis > kLimit)
      return NotSupported(object, "axis", value);
    axes.push_back(axis.get<int>());
  }
  return axes;
}

}  // namespace

absl::StatusOr<RegularizerSpec> ParseRegularizer(const json& value) {
  CAIRN_ASSIGN_OR_RETURN(const NamedConfig object, ParseNamed(value));
  if (object.kind == "orthogonalregularizer") return ParseOrthogonal(object);
  constexpr float kDefault = 0.01f;  // as in Keras
  const bool both = object.kind == "l1l2";
  if (!both && object.kind != "l1" && object.kind != "l2") {
    return absl::InvalidArgumentError(absl::StrCat("unknown regularizer ", object.class_name,
                                                   "; supported: L1, L2, L1L2, OrthogonalRegularizer"));
  }
  RegularizerSpec spec;
  if (object.kind == "l1" || (both && object.named_only)) spec.l1 = kDefault;
  if (object.kind == "l2" || (both && object.named_only)) spec.l2 = kDefault;
  for (const auto& [key, strength] : object.config.items()) {
    if (key == "name" || strength.is_null()) continue;
    if ((key != "l1" && key != "l2") || !IsStrength(strength)) return NotSupported(object, key, strength);
    (key == "l1" ? spec.l1 : spec.l2) = strength.get<float>();
  }
  return spec;
}

absl::Status CheckShape(const RegularizerSpec& regularizer, const Shape& shape) {
  if (regularizer.orthogonal == 0) return absl::OkStatus();
  const absl::string_view what = regularizer.of_columns ? "columns" : "rows";
  if (shape.rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("OrthogonalRegularizer takes a matrix, not the shape ", shape.ToString()));
  }
  constexpr int64_t kMaxVectors = 2048;
  const int64_t vectors = shape[regularizer.of_columns ? 1 : 0];
  if (vectors < 2 || vectors > kMaxVectors) {
    return absl::InvalidArgumentError(absl::StrCat("OrthogonalRegularizer takes 2 to ", kMaxVectors, " ",
                                                   what, ", and the shape ", shape.ToString(), " has ",
                                                   vectors));
  }
  return absl::OkStatus();
}

absl::StatusOr<Constraint> ParseConstraint(const json& value) {
  CAIRN_ASSIGN_OR_RETURN(const NamedConfig object, ParseNamed(value));
  Constraint constraint;
  const bool max_only = object.kind == "maxnorm", both = object.kind == "minmaxnorm";
  if (object.kind == "nonneg") {
    constraint.non_negative = true;
  } else if (max_only) {
    constraint = {.axes = {0}, .max_norm = 2};
  } else if (both) {
    constraint = {.axes = {0}, .max_norm = 1};
  } else if (object.kind == "unitnorm") {
    constraint = {.axes = {0}, .min_norm = 1, .max_norm = 1};
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown constraint ", object.class_name,
                                                   "; supported: NonNeg, MaxNorm, UnitNorm, MinMaxNorm"));
  }
  for (const auto& [key, number] : object.config.items()) {
    if (key == "name" || number.is_null()) continue;
    if (key == "axis" && !constraint.non_negative) {
      CAIRN_ASSIGN_OR_RETURN(constraint.axes, ParseAxes(object, number));
    } else if (key == "max_value" && (max_only || both) && IsStrength(number)) {
      constraint.max_norm = number.get<float>();
    } else if (key == "min_value" && both && IsStrength(number)) {
      constraint.min_norm = number.get<float>();
    } else if (key == "rate" && both && IsStrength(number)) {
      constraint.rate = number.get<float>();
    } else {
      return NotSupported(object, key, number);
    }
  }
  return constraint;
}

absl::StatusOr<Constraint> Resolve(Constraint constraint, const Shape& shape) {
  for (int& axis : constraint.axes) {
    if (axis >= 0) continue;
    if (axis < -shape.rank()) {
      return absl::InvalidArgumentError(
          absl::StrCat("its constraint is over axis ", axis, " of the shape ", shape.ToString()));
    }
    axis += shape.rank();
  }
  std::sort(constraint.axes.begin(), constraint.axes.end());
  CAIRN_RETURN_IF_ERROR(constraint.Check(shape));
  return constraint;
}

}  // namespace cairn::nn

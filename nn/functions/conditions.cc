// Functions of keras.ops that compute conditions and masks: comparisons, logical functions, where, any, all, cumsum,
// and casts between numbers, integers and booleans.
//
// A boolean is a float32 here, 0 or 1. Integers that are not inputs of the model are float32 too, exact up to 2^24.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"
#include "nn/functions/constants.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The constants among the arguments, as TakeNumber() writes them: [[argument, constant], ...].
std::vector<PlacedConstant> ReadConstants(ConfigReader& config) {
  std::vector<PlacedConstant> constants;
  const json written = config.Has("constants") ? config.Raw("constants") : json::array();
  for (const json& each : written.is_array() ? written : json::array()) {
    const bool is_pair = each.is_array() && each.size() == 2 && each[0].is_number_unsigned();
    auto array = is_pair ? ReadConstant(each[1]) : std::nullopt;
    if (array.has_value()) {
      constants.push_back({.input = each[0].get<size_t>(), .array = *std::move(array)});
    } else {
      config.Fail("constants", "expected numbers, or nested lists of numbers");
    }
  }
  return constants;
}

enum class CastTo { kFloat, kInteger, kBoolean };

CastTo ReadCastTo(ConfigReader& config) {
  const json dtype = config.Raw("dtype");
  if (dtype == "bool") return CastTo::kBoolean;
  if (dtype == "int32" || dtype == "int64") return CastTo::kInteger;
  if (!dtype.is_null() && dtype != "float32") {
    config.Fail(
        "dtype",
        absl::StrCat(dtype.dump(), " is not supported, only \"float32\", \"int32\", \"int64\" and \"bool\""));
  }
  return CastTo::kFloat;
}

}  // namespace

FunctionBody ReadAllOrAny(const FunctionOption& option, ConfigReader& config) {
  const bool keep_dims = config.Bool("keepdims", false);
  const AxesReduction reduction = {
      .axes = ReadReducedAxes(config), .keep_dims = keep_dims, .option = {.layer = "GlobalMaxPooling"}};
  return [all = option.negated, reduction](FunctionSteps& steps) {
    AddWithNumber(all ? "equal" : "not_equal", 0, steps);
    Reduce(reduction, steps);
    if (all) AddWithNumber("equal", 0, steps);  // none is 0
  };
}

FunctionBody ReadCast(const FunctionOption&, ConfigReader& config) {
  config.Refuse("sparse", false);
  config.Refuse("ragged", false);
  return [to = ReadCastTo(config)](FunctionSteps& steps) {
    if (to == CastTo::kInteger) steps.Add("CastToInteger", json::object());
    if (to == CastTo::kBoolean) AddWithNumber("not_equal", 0, steps);
  };
}

FunctionBody ReadCountNonzero(const FunctionOption&, ConfigReader& config) {
  const AxesReduction reduction = {.axes = ReadReducedAxes(config), .option = {.layer = "GlobalSumPooling"}};
  return [reduction](FunctionSteps& steps) {
    AddWithNumber("not_equal", 0, steps);
    Reduce(reduction, steps);
  };
}

FunctionBody ReadCumsum(const FunctionOption&, ConfigReader& config) {
  if (config.Raw("axis").is_null()) {
    config.Fail("axis", "null flattens the batch, which is not supported: name another axis");
    return nullptr;
  }
  const CastTo to = ReadCastTo(config);
  if (to == CastTo::kBoolean) config.Fail("dtype", "\"bool\" is not supported");
  return [truncates = to == CastTo::kInteger, axis = ReadAxis("axis", config, -1)](FunctionSteps& steps) {
    const int64_t counted = AxisOf(axis, AxesOf(steps.shape()), "axis", steps);
    if (counted < 1) return;
    if (truncates) steps.Add("CastToInteger", json::object());
    steps.Add("CumulativeSum", {{"axis", counted}});
  };
}

FunctionBody ReadElementwise(const FunctionOption& option, ConfigReader& config) {
  return [name = std::string(option.layer), constants = ReadConstants(config)](FunctionSteps& steps) {
    AddElementwise(name, constants, steps);
  };
}

// Ones, or zeros.
FunctionBody ReadFilled(const FunctionOption& option, ConfigReader&) {
  return [zeros = option.negated](FunctionSteps& steps) {
    AddWithNumber(zeros ? "logical_and" : "logical_or", zeros ? 0 : 1, steps);
  };
}

// Only a NaN differs from itself.
FunctionBody ReadIsNan(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) {
    steps.Add("ElementwiseFunction", {{"function", "not_equal"}}, {steps.latest(), steps.latest()});
  };
}

FunctionBody ReadLogicalNot(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) { AddWithNumber("equal", 0, steps); };
}

FunctionBody ReadRound(const FunctionOption&, ConfigReader& config) {
  config.Refuse("decimals", 0);
  return [](FunctionSteps& steps) { steps.AddMath("round"); };
}

}  // namespace cairn::nn

#include "nn/functions/number_arguments.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "nn/functions/keras_functions.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// An array of numbers, as Keras 3 writes it.
bool IsArrayOfNumbers(const json& argument) {
  if (!argument.is_object()) return false;
  const json class_name = argument.value("class_name", json());
  return class_name == "__tensor__" || class_name == "__numpy__";
}

bool IsConstant(const json& argument) {
  return argument.is_number() || argument.is_boolean() || IsArrayOfNumbers(argument);
}

json ArgumentsOf(const json& call) {
  return call.is_object() ? call.value("args", json()) : json();
}

// Whether some of the arguments of a call, but not all, are constants.
bool HasConstants(const json& call) {
  const json args = ArgumentsOf(call);
  return args.is_array() && absl::c_any_of(args, IsConstant) && !absl::c_all_of(args, IsConstant);
}

// Whether one of the two arguments of a call is a number or an array of numbers.
bool HasNumber(const json& call) {
  return HasConstants(call) && ArgumentsOf(call).size() == 2;
}

// Removes the constants of a call, and returns them as [[argument, constant], ...].
json RemoveConstants(json& call) {
  json constants = json::array(), tensors = json::array();
  for (size_t i = 0; i < call["args"].size(); ++i) {
    const json& argument = call["args"][i];
    if (IsConstant(argument)) constants.push_back(json::array({i, argument}));
    if (!IsConstant(argument)) tensors.push_back(argument);
  }
  call["args"] = std::move(tensors);
  return constants;
}

constexpr char kInSomeCalls[] = "has a number in some of its calls only";
constexpr char kDifferent[] = "its calls have different numbers";

absl::Status TakeAllConstants(json& layer) {
  if (absl::c_none_of(layer["inbound_nodes"], HasConstants)) return absl::OkStatus();
  json constants;
  for (json& call : layer["inbound_nodes"]) {
    if (!HasConstants(call)) return absl::InvalidArgumentError(kInSomeCalls);
    json of_call = RemoveConstants(call);
    if (!constants.is_null() && constants != of_call) return absl::InvalidArgumentError(kDifferent);
    constants = std::move(of_call);
  }
  layer["config"]["constants"] = std::move(constants);
  return absl::OkStatus();
}

// Keras computes such a function of booleans by logical operations.
bool DiffersForBooleans(const json& class_name) {
  return class_name == "Add" || class_name == "Matmul" || class_name == "Einsum";
}

// Whether all tensors among the arguments of a call are booleans.
bool HasBooleans(const json& call) {
  const json args = ArgumentsOf(call);
  const auto is_boolean = [](const json& argument) {
    const json config = argument.is_object() ? argument.value("config", json()) : json();
    return config.is_object() && config.value("dtype", json()) == "bool";
  };
  return args.is_array() && !args.empty() && absl::c_all_of(args, is_boolean);
}

}  // namespace

absl::Status TakeNumber(json& layer) {
  if (!layer.is_object() || !IsKerasFunction(layer)) return absl::OkStatus();
  const json class_name = layer.value("class_name", json()), config = layer.value("config", json());
  const json calls = layer.value("inbound_nodes", json());
  if (!class_name.is_string() || !config.is_object() || !calls.is_array()) return absl::OkStatus();
  if (DiffersForBooleans(class_name) && absl::c_any_of(calls, HasBooleans)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", class_name.get<std::string>(),
        " of booleans is not supported: cast them to float32, or use logical_or and logical_and"));
  }
  if (TakesConstants(class_name.get<std::string>())) return TakeAllConstants(layer);
  if (!TakesNumber(class_name.get<std::string>()) || absl::c_none_of(calls, HasNumber))
    return absl::OkStatus();
  json number, is_first;
  for (json& call : layer["inbound_nodes"]) {
    if (!HasNumber(call)) return absl::InvalidArgumentError(kInSomeCalls);
    const bool first = IsConstant(call["args"][0]);
    const json of_call = call["args"][first ? 0 : 1];
    if (!number.is_null() && (number != of_call || is_first != first))
      return absl::InvalidArgumentError(kDifferent);
    number = of_call;
    is_first = first;
    call["args"].erase(first ? 0 : 1);
  }
  layer["config"][IsArrayOfNumbers(number) ? "constant" : "number"] = number;
  layer["config"]["number_is_first"] = is_first;
  return absl::OkStatus();
}

}  // namespace cairn::nn

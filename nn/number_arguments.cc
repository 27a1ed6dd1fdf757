#include "nn/number_arguments.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/algorithm/container.h"
#include "nn/keras_functions.h"
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
  return argument.is_number() || IsArrayOfNumbers(argument);
}

// Whether one of the two arguments of a call is a number or an array of numbers.
bool HasNumber(const json& call) {
  const json args = call.is_object() ? call.value("args", json()) : json();
  return args.is_array() && args.size() == 2 && IsConstant(args[0]) != IsConstant(args[1]);
}

}  // namespace

absl::Status TakeNumber(json& layer) {
  if (!layer.is_object() || !IsKerasFunction(layer)) return absl::OkStatus();
  const json class_name = layer.value("class_name", json()), config = layer.value("config", json());
  const json calls = layer.value("inbound_nodes", json());
  if (!class_name.is_string() || !TakesNumber(class_name.get<std::string>()) || !config.is_object() ||
      !calls.is_array() || absl::c_none_of(calls, HasNumber)) {
    return absl::OkStatus();
  }
  json number, is_first;
  for (json& call : layer["inbound_nodes"]) {
    if (!HasNumber(call)) return absl::InvalidArgumentError("has a number in some of its calls only");
    const bool first = IsConstant(call["args"][0]);
    const json of_call = call["args"][first ? 0 : 1];
    if (!number.is_null() && (number != of_call || is_first != first))
      return absl::InvalidArgumentError("its calls have different numbers");
    number = of_call;
    is_first = first;
    call["args"].erase(first ? 0 : 1);
  }
  layer["config"][IsArrayOfNumbers(number) ? "constant" : "number"] = number;
  layer["config"]["number_is_first"] = is_first;
  return absl::OkStatus();
}

}  // namespace cairn::nn

#include "nn/number_arguments.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct Affine {
  double scale = 1, offset = 0;
};

// The function with the number `c` as the first or the second argument; nullopt if it is no affine map.
std::optional<Affine> AffineOf(const std::string& function, double c, bool number_is_first) {
  if (function == "Add") return Affine{.offset = c};
  if (function == "Multiply") return Affine{.scale = c};
  if (function == "Subtract") return number_is_first ? Affine{-1, c} : Affine{1, -c};
  if ((function == "Divide" || function == "TrueDivide") && !number_is_first) return Affine{.scale = 1 / c};
  return std::nullopt;
}

}  // namespace

absl::Status ReplaceNumbers(json& layer) {
  if (!layer.is_object() || !IsKerasFunction(layer)) return absl::OkStatus();
  const json calls = layer.value("inbound_nodes", json()), class_name = layer.value("class_name", json());
  const json config = layer.value("config", json());
  if (!calls.is_array() || calls.size() != 1 || !calls[0].is_object() || !class_name.is_string() ||
      !config.is_object()) {
    return absl::OkStatus();
  }
  const json args = calls[0].value("args", json());
  if (!args.is_array() || args.size() != 2 || args[0].is_number() == args[1].is_number())
    return absl::OkStatus();
  const bool number_is_first = args[0].is_number();
  const double number = args[number_is_first ? 0 : 1].get<double>();
  const auto affine = AffineOf(class_name.get<std::string>(), number, number_is_first);
  if (!affine.has_value()) return absl::OkStatus();
  if (number == 0 && class_name != "Add" && class_name != "Multiply" && class_name != "Subtract")
    return absl::InvalidArgumentError("divides by 0");
  layer["class_name"] = "Rescaling";
  layer["config"]["scale"] = affine->scale;
  layer["config"]["offset"] = affine->offset;
  layer["inbound_nodes"][0]["args"] = json::array({args[number_is_first ? 1 : 0]});
  return absl::OkStatus();
}

}  // namespace cairn::nn

#include "nn/layer/dtype_policy.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn::nn {

using nlohmann::json;

void CheckDtype(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (value.is_null() || value == "float32") return;
  const json class_name = value.is_object() ? value.value("class_name", json()) : json();
  if (class_name == "QuantizedDTypePolicy" || class_name == "QuantizedFloat8DTypePolicy") {
    return config.Fail(field, absl::StrCat("the model is quantized (", value.value("config", json()).dump(),
                                           "), which is not supported: save it before quantize()"));
  }
  const bool policy =
      class_name == "DTypePolicy" || class_name == "FloatDTypePolicy" || class_name == "Policy";
  const json name = policy && value.contains("config") && value["config"].is_object()
                        ? value["config"].value("name", json())
                        : value;
  if (name == "float32") return;
  if (absl::StrContains(name.dump(), "mixed_")) {
    return config.Fail(field, absl::StrCat("policy ", name.dump(),
                                           " is not supported: save the model with \"float32\"; --precision "
                                           "chooses what a device computes in"));
  }
  config.Fail(field, absl::StrCat(name.dump(), " is not supported, only \"float32\""));
}

}  // namespace cairn::nn

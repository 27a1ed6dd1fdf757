#include "worker/nn/layers/activation.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct Row {
  absl::string_view name;
  ActivationKind kind;
};
constexpr Row kActivations[] = {
    {"linear", ActivationKind::kLinear},
    {"relu", ActivationKind::kRelu},
    {"softmax", ActivationKind::kSoftmax},
};

// A plain name, or the objects that some versions of Keras 3 write: {"class_name":"function","config":"relu"}
// and
// {"class_name":"ReLU","config":{...}}, of which only the first carries no options of its own.
const json& NameOf(const json& value) {
  static const json* const kFunction = new json("function");
  if (!value.is_object() || !value.contains("config") || !value.contains("class_name")) return value;
  return value["class_name"] == *kFunction ? value["config"] : value;
}

}  // namespace

ActivationKind ReadActivation(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (value.is_null()) return ActivationKind::kLinear;
  const json& name = NameOf(value);
  for (const Row& row : kActivations) {
    if (name.is_string() && name.get_ref<const std::string&>() == std::string(row.name)) return row.kind;
  }
  config.Fail(field, absl::StrCat("unknown activation ", name.dump(), "; supported: ",
                                  absl::StrJoin(kActivations, ", ", [](std::string* out, const Row& row) {
                                    absl::StrAppend(out, row.name);
                                  })));
  return ActivationKind::kLinear;
}

kernels::Activation FusedPart(ActivationKind kind) {
  return kind == ActivationKind::kRelu ? kernels::Activation::kRelu : kernels::Activation::kLinear;
}

}  // namespace cairn::nn

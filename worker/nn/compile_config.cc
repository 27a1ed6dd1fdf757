#include "worker/nn/compile_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/nn/config_reader.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct ShortName {
  const char* name;
  const char* class_name;
};
constexpr ShortName kShortNames[] = {
    {"adam", "Adam"},
    {"adamw", "AdamW"},
    {"adagrad", "Adagrad"},
    {"adadelta", "Adadelta"},
    {"adamax", "Adamax"},
    {"nadam", "Nadam"},
    {"rmsprop", "RMSprop"},
    {"sgd", "SGD"},
    {"ftrl", "Ftrl"},
    {"lion", "Lion"},
    {"lamb", "Lamb"},
    {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"},
    {"categorical_crossentropy", "CategoricalCrossentropy"},
    {"mean_squared_error", "MeanSquaredError"},
    {"mse", "MeanSquaredError"},
};

// The member of an object, null where there is none or `document` is no object.
const json& Member(const json& document, const char* key) {
  static const json* const null = new json(nullptr);
  const auto found = document.is_object() ? document.find(key) : document.end();
  return found == document.end() ? *null : *found;
}

std::string ClassNameOf(const std::string& name) {
  for (const ShortName& row : kShortNames) {
    if (name == row.name) return row.class_name;
  }
  return name;
}

// Strings in the config of an optimizer or a loss: those that change nothing for us, and the values of those
// that do.
absl::Status CheckString(const std::string& key, const std::string& value) {
  if (key == "name") return absl::OkStatus();
  if (key == "reduction" && (value == "sum_over_batch_size" || value == "auto")) return absl::OkStatus();
  if (key == "dtype" && value == "float32") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, ": \"", value, "\" is not supported",
                                                 key == "reduction" ? ", only \"sum_over_batch_size\"" : ""));
}

bool IsListOfNumbers(const json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& entry) { return entry.is_number(); });
}

absl::StatusOr<KerasObject> ParseObject(const json& document) {
  if (document.is_string()) return KerasObject{.class_name = ClassNameOf(document.get<std::string>())};
  const json& class_name = Member(document, "class_name");
  if (!class_name.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a name or an object with class_name, got ", document.dump()));
  }
  KerasObject object = {.class_name = ClassNameOf(class_name.get<std::string>())};
  const json& config = Member(document, "config");
  if (!config.is_object() && !config.is_null()) {
    return absl::InvalidArgumentError(absl::StrCat("config: expected an object, got ", config.dump()));
  }
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    if (value.is_string()) {
      CAIRN_RETURN_IF_ERROR(CheckString(key, value.get<std::string>()));
    } else if (value.is_number()) {
      object.config[key] = value.get<double>();
    } else if (value.is_boolean()) {
      object.config[key] = value.get<bool>() ? 1 : 0;
    } else if (IsListOfNumbers(value)) {
      object.lists[key] = value.get<std::vector<double>>();
    } else if (key != "dtype" || Member(Member(value, "config"), "name") != "float32") {
      return absl::InvalidArgumentError(absl::StrCat(key, ": ", value.dump(), " is not supported"));
    }
  }
  return object;
}

// As ParseObject(), of an object whose config has no lists.
absl::StatusOr<KerasObject> ParsePlainObject(const json& document) {
  CAIRN_ASSIGN_OR_RETURN(KerasObject object, ParseObject(document));
  if (object.lists.empty()) return object;
  return absl::InvalidArgumentError(absl::StrCat(object.lists.begin()->first, ": a list is not supported"));
}

// An optimizer, and the schedule that it may have for a learning rate.
absl::Status ParseOptimizer(json document, CompileConfig& config) {
  if (Member(Member(document, "config"), "learning_rate").is_object()) {
    auto schedule = ParseObject(document["config"]["learning_rate"]);
    if (!schedule.ok()) return Annotate(schedule.status(), "learning_rate");
    config.learning_rate_schedule = *std::move(schedule);
    document["config"].erase("learning_rate");
  }
  CAIRN_ASSIGN_OR_RETURN(config.optimizer, ParsePlainObject(document));
  return absl::OkStatus();
}

// Keras writes ["accuracy"], or one list per output, or objects of metric classes.
absl::Status AppendMetrics(const json& document, std::vector<std::string>& metrics) {
  if (document.is_null()) return absl::OkStatus();
  if (document.is_array()) {
    for (const json& entry : document) CAIRN_RETURN_IF_ERROR(AppendMetrics(entry, metrics));
    return absl::OkStatus();
  }
  if (document.is_string()) {
    metrics.push_back(document.get<std::string>());
    return absl::OkStatus();
  }
  for (const json& name : {Member(Member(document, "config"), "name"), Member(document, "class_name")}) {
    if (!name.is_string()) continue;
    metrics.push_back(name.get<std::string>());
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("expected names of metrics, got ", document.dump()));
}

}  // namespace

absl::StatusOr<CompileConfig> ParseCompileConfig(const json& document) {
  CompileConfig config;
  ConfigReader reader(document);
  if (const json& optimizer = reader.Raw("optimizer"); !optimizer.is_null()) {
    const auto status = ParseOptimizer(optimizer, config);
    if (!status.ok()) reader.Fail("optimizer", status.message());
  }
  if (const json& loss = reader.Raw("loss"); !loss.is_null()) {
    auto parsed = ParsePlainObject(loss);
    if (parsed.ok()) {
      config.loss = *std::move(parsed);
    } else {
      reader.Fail("loss", parsed.status().message());
    }
  }
  for (const char* field : {"metrics", "weighted_metrics"}) {
    if (const auto status = AppendMetrics(reader.Raw(field), config.metrics); !status.ok()) {
      reader.Fail(field, status.message());
    }
  }
  reader.RefuseUnlessNull({"loss_weights"});
  // How Keras runs a step: this program has its own way.
  reader.Ignore({"run_eagerly", "steps_per_execution", "jit_compile", "auto_scale_loss"});
  CAIRN_RETURN_IF_ERROR(reader.Finish());
  return config;
}

}  // namespace cairn::nn

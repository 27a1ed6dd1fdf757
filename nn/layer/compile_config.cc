#include "nn/layer/compile_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct ShortName {
  const char* name;
  const char* class_name;
};
constexpr ShortName kOptimizers[] = {
    {"adam", "Adam"},     {"adamw", "AdamW"}, {"adagrad", "Adagrad"}, {"adadelta", "Adadelta"},
    {"adamax", "Adamax"}, {"nadam", "Nadam"}, {"rmsprop", "RMSprop"}, {"sgd", "SGD"},
    {"ftrl", "Ftrl"},     {"lion", "Lion"},   {"lamb", "Lamb"},
};

// An optimizer that is not supported. The job refuses it by its name, unless a flag replaces it, and not by the lists
// in its config.
constexpr char kMuon[] = "Muon";

// The member of an object; null if there is none or `document` is not an object.
const json& Member(const json& document, const char* key) {
  static const json* const null = new json(nullptr);
  const auto found = document.is_object() ? document.find(key) : document.end();
  return found == document.end() ? *null : *found;
}

// Whether `value` is Keras 2's or Keras 3's name for the mean over the batch.
bool IsMeanReduction(const std::string& value) {
  return value == "sum_over_batch_size" || value == "mean" || value == "auto";
}

// Removes the strings that have no effect: the name, the default reduction, and "fn", in which Keras 2 writes the
// function that a loss calls.
void DropNeutralTexts(KerasObject& object) {
  std::erase_if(object.texts, [&object](const auto& text) {
    const auto& [key, value] = text;
    return key == "name" || (key == "reduction" && IsMeanReduction(value)) ||
           (key == "fn" && value == SnakeCase(object.class_name));
  });
}

// Returns an error if an optimizer has a string that has an effect.
absl::Status RefuseTexts(KerasObject& object) {
  DropNeutralTexts(object);
  if (object.texts.empty()) return absl::OkStatus();
  const auto& [key, value] = *object.texts.begin();
  return absl::InvalidArgumentError(absl::StrCat(key, ": \"", value, "\" is not supported"));
}

// If `document` describes a function of Keras, returns the function's name, otherwise `document` itself. The
// result is a string if the object is given by name only.
const json& PlainName(const json& document) {
  return Member(document, "class_name") == "function" ? Member(document, "config") : document;
}

bool IsListOfNumbers(const json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& entry) { return entry.is_number(); });
}

absl::StatusOr<KerasObject> ParseObject(const json& document) {
  const json& name = PlainName(document);
  if (name.is_string()) return KerasObject{.class_name = name.get<std::string>()};
  const json& class_name = Member(document, "class_name");
  if (!class_name.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a name or an object with class_name, got ", document.dump()));
  }
  CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(document));
  KerasObject object = {.class_name = class_name.get<std::string>()};
  const json& config = Member(document, "config");
  if (!config.is_object() && !config.is_null()) {
    return absl::InvalidArgumentError(absl::StrCat("config: expected an object, got ", config.dump()));
  }
  for (const auto& [key, value] : config.items()) {
    if (value.is_null() || (key == "dtype" && value == "float32")) continue;
    if (value.is_string()) {
      object.texts[key] = value.get<std::string>();
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

absl::Status RefuseLists(const KerasObject& object) {
  if (object.lists.empty()) return absl::OkStatus();
  const auto& [key, values] = *object.lists.begin();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": [", absl::StrJoin(values, ","), "] is not supported"));
}

// Like ParseObject(), for an object whose config has no lists, and no strings with an effect.
absl::StatusOr<KerasObject> ParsePlainObject(const json& document) {
  CAIRN_ASSIGN_OR_RETURN(KerasObject object, ParseObject(document));
  CAIRN_RETURN_IF_ERROR(RefuseTexts(object));
  CAIRN_RETURN_IF_ERROR(RefuseLists(object));
  return object;
}

// Keras 2 registered its own optimizers as custom ones.
std::string OptimizerClass(std::string name) {
  constexpr absl::string_view kRegistered = "Custom>";
  if (absl::StartsWith(name, kRegistered)) name.erase(0, kRegistered.size());
  for (const ShortName& row : kOptimizers) {
    if (name == row.name) return row.class_name;
  }
  return name;
}

// Returns the optimizer within a LossScaleOptimizer, which only says how Keras scales the loss in float16: in float16,
// a replica scales the loss itself. Returns other optimizers as they are.
absl::StatusOr<json> WithoutLossScale(const json& document) {
  const json& class_name = Member(document, "class_name");
  if (!class_name.is_string() || OptimizerClass(class_name.get<std::string>()) != "LossScaleOptimizer")
    return document;
  CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(document));
  ConfigReader config(Member(document, "config"));
  config.Ignore({"name", "initial_scale", "dynamic", "dynamic_growth_steps"});
  json inner = config.Raw("inner_optimizer");
  if (inner.is_null()) config.Fail("inner_optimizer", "required");
  CAIRN_RETURN_IF_ERROR(Annotate(config.Finish(), "LossScaleOptimizer"));
  return inner;
}

// Parses an optimizer, and its learning rate schedule if it has one.
absl::Status ParseOptimizer(const json& written, CompileConfig& config) {
  CAIRN_ASSIGN_OR_RETURN(json document, WithoutLossScale(written));
  if (Member(document, "class_name") == kMuon) {
    CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(document));
    config.optimizer = KerasObject{.class_name = kMuon};
    return absl::OkStatus();
  }
  if (Member(Member(document, "config"), "learning_rate").is_object()) {
    auto schedule = ParseObject(document["config"]["learning_rate"]);
    CAIRN_RETURN_IF_ERROR(Annotate(schedule.status(), "learning_rate"));
    CAIRN_RETURN_IF_ERROR(Annotate(RefuseTexts(*schedule), "learning_rate"));
    config.learning_rate_schedule = *std::move(schedule);
    document["config"].erase("learning_rate");
  }
  CAIRN_ASSIGN_OR_RETURN(config.optimizer, ParsePlainObject(document));
  config.optimizer->class_name = OptimizerClass(std::move(config.optimizer->class_name));
  return absl::OkStatus();
}

// Removes the field "fn", the name of the function that computes the metric, from a metric that Keras 2
// wrote. A metric that the user gave by name has the class MeanMetricWrapper; its class name becomes the name
// of the function. "accuracy" stays "accuracy": Keras 2 chose its function before the targets were known.
void DropFunction(KerasObject& metric) {
  const auto function = metric.texts.find("fn");
  if (function == metric.texts.end()) return;
  if (metric.class_name == "MeanMetricWrapper") {
    const auto name = metric.texts.find("name");
    const bool chosen = name != metric.texts.end() && (name->second == "accuracy" || name->second == "acc");
    metric.class_name = chosen ? name->second : function->second;
  } else if (function->second != SnakeCase(metric.class_name)) {
    return;  // ParseMetrics() refuses "fn" as an unknown option
  }
  metric.texts.erase(function);
}

absl::StatusOr<KerasObject> ParseMetric(const json& document) {
  CAIRN_ASSIGN_OR_RETURN(KerasObject object, ParseObject(document));
  // A list of one threshold means the same as a single threshold.
  if (const auto found = object.lists.find("thresholds"); found != object.lists.end()) {
    if (found->second.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("thresholds: [", absl::StrJoin(found->second, ","),
                                                     "] is not supported, only one number: list the metric "
                                                     "once for each threshold"));
    }
    object.config["thresholds"] = found->second.front();
    object.lists.erase(found);
  }
  // Only the classes of an intersection over union are a list.
  KerasObject others = object;
  others.lists.erase("target_class_ids");
  CAIRN_RETURN_IF_ERROR(RefuseLists(others));
  DropFunction(object);
  return object;
}

// Whether `document` is a dictionary by output, not an object of Keras.
bool IsByName(const json& document) {
  return document.is_object() && !document.contains("class_name");
}

// Calls take(output, entry) for an argument of compile() that is given once, as a list, or as a dictionary. Outputs
// without an entry have a null.
absl::Status ForEachOutput(const json& document,
                           absl::FunctionRef<absl::Status(const OutputKey& output, const json& entry)> take) {
  if (document.is_null()) return absl::OkStatus();
  if (IsByName(document)) {
    for (const auto& [name, entry] : document.items()) {
      if (entry.is_null()) continue;
      const absl::Status status = take({.name = name}, entry);
      if (!status.ok()) return Annotate(status, absl::StrCat("'", name, "'"));
    }
    return absl::OkStatus();
  }
  if (!document.is_array()) return take({}, document);
  for (size_t i = 0; i < document.size(); ++i) {
    if (document[i].is_null()) continue;
    CAIRN_RETURN_IF_ERROR(take({.position = static_cast<int>(i)}, document[i]));
  }
  return absl::OkStatus();
}

// Appends the metrics of one output: one, or lists of them, as names or as objects of metric classes.
absl::Status AppendMetrics(const json& document, bool weighted, const OutputKey& output,
                           std::vector<CompiledMetric>& metrics) {
  if (document.is_null()) return absl::OkStatus();
  if (document.is_array()) {
    for (const json& entry : document) CAIRN_RETURN_IF_ERROR(AppendMetrics(entry, weighted, output, metrics));
    return absl::OkStatus();
  }
  auto metric = ParseMetric(document);
  if (!metric.ok()) return Annotate(metric.status(), Member(document, "class_name").dump());
  if (PlainName(document).is_string()) *metric = MetricOfName(metric->class_name);
  metrics.push_back({*std::move(metric), weighted, output});
  return absl::OkStatus();
}

absl::Status ParseLosses(const json& document, CompileConfig& config) {
  return ForEachOutput(document, [&](const OutputKey& output, const json& entry) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(KerasObject loss, ParseObject(entry));
    DropNeutralTexts(loss);
    for (const char* key : {"reduction", "fn"}) {
      const auto found = loss.texts.find(key);
      if (found == loss.texts.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": \"", found->second, "\" is not supported",
                       found->first == "reduction" ? ", only \"sum_over_batch_size\"" : ""));
    }
    config.losses.push_back({output, std::move(loss)});
    return absl::OkStatus();
  });
}

absl::Status ParseLossWeights(const json& document, CompileConfig& config) {
  return ForEachOutput(document, [&](const OutputKey& output, const json& entry) {
    if (!entry.is_number() || output.all()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a list of numbers or a dictionary, got ", document.dump()));
    }
    config.loss_weights.push_back({output, entry.get<double>()});
    return absl::OkStatus();
  });
}

}  // namespace

KerasObject MetricOfName(std::string name) {
  KerasObject metric = {.class_name = name};
  metric.texts["name"] = std::move(name);
  return metric;
}

absl::StatusOr<CompileConfig> ParseCompileConfig(const json& document) {
  CompileConfig config;
  ConfigReader reader(document);
  if (const json& optimizer = reader.Raw("optimizer"); !optimizer.is_null()) {
    const absl::Status status = ParseOptimizer(optimizer, config);
    if (!status.ok()) reader.Fail("optimizer", status.message());
  }
  for (const auto& [field, parse] : {std::pair{"loss", &ParseLosses}, {"loss_weights", &ParseLossWeights}}) {
    const absl::Status status = parse(reader.Raw(field), config);
    if (!status.ok()) reader.Fail(field, status.message());
  }
  for (const char* field : {"metrics", "weighted_metrics"}) {
    const bool weighted = absl::StartsWith(field, "weighted");
    const absl::Status status =
        ForEachOutput(reader.Raw(field), [&](const OutputKey& output, const json& entry) {
          return AppendMetrics(entry, weighted, output, config.metrics);
        });
    if (!status.ok()) reader.Fail(field, status.message());
  }
  // These options tell Keras how to run a step, and do not apply here.
  reader.Ignore({"run_eagerly", "steps_per_execution", "jit_compile", "auto_scale_loss"});
  CAIRN_RETURN_IF_ERROR(reader.Finish());
  return config;
}

}  // namespace cairn::nn

// What `model.compile()` said, as `compile_config` of a model file keeps it: optimizer, loss, metrics.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::nn {

// A Keras object that only parameters describe: an optimizer with its hyperparameters, a loss or a metric
// with its options.
struct KerasObject {
  std::string class_name;                              // "Adam", "SparseCategoricalCrossentropy"
  std::map<std::string, double> config{};              // numbers and booleans; nulls are absent
  std::map<std::string, std::vector<double>> lists{};  // lists of numbers, of a schedule alone
  // Strings, of a metric alone: {"curve", "PR"}, and the name it is shown by: {"name", "auc_pr"}.
  std::map<std::string, std::string> texts{};
};

// One entry of compile()'s `metrics`, whose values ignore the examples' weights, or of `weighted_metrics`.
struct CompiledMetric {
  KerasObject metric;
  bool weighted = false;
};

// Each part is optional.
struct CompileConfig {
  std::optional<KerasObject> optimizer;
  std::optional<KerasObject> learning_rate_schedule;  // what the optimizer has in place of a number
  std::optional<KerasObject> loss;
  std::vector<CompiledMetric> metrics;
};

// A metric that was given by its name alone: "accuracy", "mse". It is shown by that name.
KerasObject MetricOfName(std::string name);

// Any of the three may be a plain name ("adam"); an optimizer's becomes Keras' class name where it is known.
// Refused, with INVALID_ARGUMENT naming the field: what this program would have to ignore, such as loss
// weights, several losses, a reduction other than the mean over the batch.
absl::StatusOr<CompileConfig> ParseCompileConfig(const nlohmann::json& json);

}  // namespace cairn::nn

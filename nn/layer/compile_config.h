// The arguments of `model.compile()`, from `compile_config` of a model file: optimizer, loss, metrics.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::nn {

// A Keras object that is described by its parameters alone: an optimizer with its hyperparameters, a loss or
// a metric with its options.
struct KerasObject {
  std::string class_name;                              // "Adam", "SparseCategoricalCrossentropy"
  std::map<std::string, double> config{};              // numbers and booleans; nulls are absent
  std::map<std::string, std::vector<double>> lists{};  // lists of numbers; of schedules, losses and metrics
  // Strings, which losses and metrics have: options such as {"curve", "PR"}, and the displayed name of a metric, such
  // as {"name", "auc_pr"}.
  std::map<std::string, std::string> texts{};
};

// The output of the model that an argument of compile() is for: its key in a dictionary, or its position in a list.
struct OutputKey {
  std::string name{};
  int position = -1;

  // The argument is given once, for all outputs.
  bool all() const { return name.empty() && position < 0; }
};

// An entry of compile()'s `metrics`, whose values ignore the examples' weights, or of its `weighted_metrics`.
struct CompiledMetric {
  KerasObject metric;
  bool weighted = false;
  OutputKey output{};
};

struct CompiledLoss {
  OutputKey output;
  KerasObject loss;
};

struct CompiledWeight {
  OutputKey output;
  double weight = 1;
};

// Every member is optional.
struct CompileConfig {
  std::optional<KerasObject> optimizer;
  std::optional<KerasObject> learning_rate_schedule;  // replaces the optimizer's constant learning rate
  std::vector<CompiledLoss> losses;
  std::vector<CompiledWeight> loss_weights;
  std::vector<CompiledMetric> metrics;
};

// A metric that is given by name only: "accuracy", "mse". This is also its displayed name.
KerasObject MetricOfName(std::string name);

// Optimizer, loss and metrics may each be a plain name ("adam"). The name of a known optimizer becomes its
// Keras class name. INVALID_ARGUMENT naming the field if this program would have to ignore it, such as a reduction
// other than the mean over the batch.
absl::StatusOr<CompileConfig> ParseCompileConfig(const nlohmann::json& json);

}  // namespace cairn::nn

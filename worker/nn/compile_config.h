// What `model.compile()` said, as `compile_config` of a model file keeps it: optimizer, loss, metrics.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::nn {

// A Keras object that only parameters describe: an optimizer with its hyperparameters, a loss with its
// options.
struct KerasObject {
  std::string class_name;  // "Adam", "SparseCategoricalCrossentropy"
  std::map<std::string, double>
      config{};  // numbers and booleans of its config; nulls and its name are absent
  std::map<std::string, std::vector<double>> lists{};  // lists of numbers in its config
};

// Each part is optional.
struct CompileConfig {
  std::optional<KerasObject> optimizer;
  std::optional<KerasObject> learning_rate_schedule;  // what the optimizer has in place of a number
  std::optional<KerasObject> loss;
  std::vector<std::string> metrics;  // as Keras names them: "accuracy"
};

// An optimizer or a loss may be a plain name ("adam"), which becomes Keras' class name where it is known.
// Refused, with INVALID_ARGUMENT naming the field: what this program would have to ignore, such as loss
// weights, several losses, a reduction other than the mean over the batch.
absl::StatusOr<CompileConfig> ParseCompileConfig(const nlohmann::json& json);

}  // namespace cairn::nn

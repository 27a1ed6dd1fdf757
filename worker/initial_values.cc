#include "worker/initial_values.h"

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/train_dir.h"
#include "worker/export/model_source.h"

namespace cairn::worker {

std::string InitialValuesSource(const TrainOptions& options) {
  if (options.init_from == kInitializersOnly) return "";
  if (!options.init_from.empty()) return options.init_from;
  return HasWeights(options.model) ? options.model : "";
}

bool HasCheckpointToResume(const TrainOptions& options) {
  if (options.resume != "auto" && options.resume != "never") return true;
  if (options.train_dir.empty() || options.resume == "never") return false;
  const auto checkpoints = ListCheckpoints(options.train_dir);
  return checkpoints.ok() && !checkpoints->empty();
}

std::string DescribeInitialValues(const TrainOptions& options) {
  const std::string source = InitialValuesSource(options);
  if (!source.empty()) return absl::StrCat("initial values: from ", source);
  return absl::StrCat("initial values: from the model's initializers, seed ", options.seed);
}

}  // namespace cairn::worker

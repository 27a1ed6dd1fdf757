#include "worker/inputs/initial_values.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/train_dir.h"
#include "worker/export/model_source.h"

namespace cairn::worker {

std::string InitialValuesSource(const TrainOptions& options) {
  if (options.init_from == kInitializersOnly) return "";
  if (!options.init_from.empty()) return options.init_from;
  return HasWeights(options.model) ? options.model : "";
}

std::string CheckpointSource(const TrainOptions& options) {
  if (options.resume == "never") return "";
  if (!options.train_dir.empty()) {
    const auto checkpoints = ListCheckpoints(options.train_dir);
    if (checkpoints.ok() && !checkpoints->empty()) return options.train_dir;
  }
  return options.resume == "auto" ? "" : options.resume;
}

std::vector<std::string> WarnOfUnadaptedLayers(const nn::Model& model) {
  std::vector<std::string> warnings;
  std::set<std::string> seen;  // a layer may be used several times
  for (const nn::Node& node : model.nodes()) {
    if (node.layer->class_name() != "Normalization" || node.variables.empty()) continue;
    if (!seen.insert(node.layer->name()).second) continue;
    warnings.push_back(absl::StrCat(
        "layer '", node.layer->name(),
        "' (Normalization) passes its inputs unchanged: the model file has neither the mean and variance of "
        "adapt() nor any in the layer's configuration; run `cairn model adapt`, save the adapted model as "
        ".keras, "
        "or give its weights by --init_from"));
  }
  return warnings;
}

std::string DescribeInitialValues(const TrainOptions& options) {
  const std::string source = InitialValuesSource(options);
  if (!source.empty()) return absl::StrCat("initial values: from ", source);
  return absl::StrCat("initial values: from the model's initializers, seed ", options.seed);
}

}  // namespace cairn::worker

#include "nn/model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"

namespace cairn::nn {

absl::StatusOr<Model> Model::FromFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return FromJson(text, path);
}

Shape Model::input_shape() const {
  if (inputs_.size() == 1) return inputs_[0].shape;
  int64_t elements = 0;
  for (const ModelInput& input : inputs_) elements += input.shape.num_elements();
  return {elements};
}

bool Model::synchronizes_batch() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node& node) { return node.layer->synchronizes_batch(); });
}

absl::Status Model::CheckBatchMayBeDivided(absl::string_view parts) const {
  for (const Node& node : nodes_) {
    if (!node.layer->synchronizes_batch()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(),
                     "): synchronized: true is not supported where a batch is divided among ", parts,
                     "; set it to false, or do not divide the batch"));
  }
  return absl::OkStatus();
}

std::vector<float> Model::InitialParameters(uint64_t seed) const {
  std::vector<float> parameters = FloatVector(num_parameters_, "the model's variables");
  for (const ModelVariable& variable : variables_) {
    Initialize(variable.initializer, variable.shape, seed, variable.name,
               absl::MakeSpan(parameters)
                   .subspan(static_cast<size_t>(variable.offset),
                            static_cast<size_t>(variable.shape.num_elements())));
  }
  return parameters;
}

}  // namespace cairn::nn

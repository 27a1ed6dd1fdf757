#include "nn/replica/pipeline_stage.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

namespace cairn::nn {
namespace {

// The values of a model whose gradients are needed: inputs that need one, and nodes that have a variable or depend
// on such a value.
class NeededGradients {
 public:
  explicit NeededGradients(const Model& model) : model_(model) {
    for (const Node& node : model.nodes()) {
      const bool depends = !node.variables.empty() || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                                  [&](int input) { return of(input); });
      of_node_.push_back(depends && !node.layer->is_mask());
    }
  }
  // `value` is in the numbering of Node::inputs.
  bool of(int value) const {
    return value >= 0 ? of_node_[static_cast<size_t>(value)]
                      : model_.inputs()[static_cast<size_t>(Node::OfModelInput(value))].needs_gradient;
  }

 private:
  const Model& model_;
  std::vector<bool> of_node_;
};

// The stages that end before the nodes `ends`, ascending. The last of `ends` is the number of nodes.
std::vector<PipelineStage> StagesOf(const Model& model, absl::Span<const int> ends) {
  const NeededGradients needed(model);
  std::vector<PipelineStage> stages;
  std::vector<size_t> stage_of;                          // [node]
  std::vector<bool> read_outside(model.nodes().size());  // [node] whether another stage reads the node
  for (const int end : ends) {
    PipelineStage& stage = stages.emplace_back();
    stage.begin = static_cast<int>(stage_of.size());
    stage.end = end;
    stage_of.resize(static_cast<size_t>(end), stages.size() - 1);
    std::set<int> inputs, variables;
    for (int index = stage.begin; index < end; ++index) {
      const Node& node = model.nodes()[static_cast<size_t>(index)];
      for (const int input : node.inputs) {
        if (input >= stage.begin) continue;
        if (input >= 0) read_outside[static_cast<size_t>(input)] = true;
        if (inputs.insert(input).second) stage.inputs.push_back(input);
      }
      variables.insert(node.variables.begin(), node.variables.end());
      stage.needs_gradient = stage.needs_gradient || needed.of(index);
    }
    stage.variables.assign(variables.begin(), variables.end());
    for (const int input : stage.inputs) stage.input_needs_gradient.push_back(needed.of(input));
  }
  for (size_t node = 0; node < read_outside.size(); ++node) {
    if (read_outside[node]) stages[stage_of[node]].outputs.push_back(static_cast<int>(node));
  }
  stages.back().last = true;
  stages.back().outputs = {static_cast<int>(read_outside.size()) - 1};
  return stages;
}

}  // namespace

PipelineStage WholeModel(const Model& model) {
  PipelineStage stage = std::move(StagesOf(model, {static_cast<int>(model.nodes().size())}).front());
  // A stage of the whole model reads all model inputs, in the order in which a row of a batch contains them.
  stage.inputs.clear();
  stage.input_needs_gradient.clear();
  for (int input = 0; input < static_cast<int>(model.inputs().size()); ++input) {
    stage.inputs.push_back(Node::OfModelInput(input));
    stage.input_needs_gradient.push_back(model.inputs()[static_cast<size_t>(input)].needs_gradient);
  }
  return stage;
}

std::vector<PipelineStage> SplitModel(const Model& model, absl::Span<const int> device_of) {
  std::vector<int> ends;
  for (size_t node = 1; node <= device_of.size(); ++node) {
    if (node == device_of.size() || device_of[node] != device_of[node - 1])
      ends.push_back(static_cast<int>(node));
  }
  return StagesOf(model, ends);
}

}  // namespace cairn::nn

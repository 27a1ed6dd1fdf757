#include "worker/nn/model_part.h"

#include <algorithm>
#include <cstddef>

namespace cairn::nn {
namespace {

// [node] Whether a variable stands in it or before it.
std::vector<bool> NeedGradients(const Model& model) {
  std::vector<bool> need;
  for (const Node& node : model.nodes()) {
    need.push_back(!node.variables.empty() ||
                   std::any_of(node.inputs.begin(), node.inputs.end(),
                               [&](int input) { return input >= 0 && need[static_cast<size_t>(input)]; }));
  }
  return need;
}

void InsertOnce(std::vector<int>& values, int value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

ModelPart PartOf(const Model& model, const std::vector<bool>& need, int begin, int end) {
  const auto nodes = static_cast<int>(model.nodes().size());
  ModelPart part;
  part.begin = begin;
  part.end = end;
  part.last = end == nodes;
  for (int index = begin; index < end; ++index) {
    const Node& node = model.nodes()[static_cast<size_t>(index)];
    for (const int input : node.inputs) {
      if (input < begin) InsertOnce(part.inputs, input);
    }
    for (const int variable : node.variables) InsertOnce(part.variables, variable);
    part.needs_gradient = part.needs_gradient || need[static_cast<size_t>(index)];
  }
  for (const int input : part.inputs) {
    part.input_needs_gradient.push_back(input >= 0 && need[static_cast<size_t>(input)]);
  }
  for (int index = end; index < nodes; ++index) {
    for (const int input : model.nodes()[static_cast<size_t>(index)].inputs) {
      if (input >= begin && input < end) InsertOnce(part.outputs, input);
    }
  }
  if (part.last) part.outputs = {nodes - 1};
  std::sort(part.outputs.begin(), part.outputs.end());
  std::sort(part.variables.begin(), part.variables.end());
  return part;
}

}  // namespace

ModelPart WholeModel(const Model& model) {
  ModelPart part = PartOf(model, NeedGradients(model), 0, static_cast<int>(model.nodes().size()));
  // All of them, in the order in which a batch brings them.
  part.inputs.clear();
  for (int input = 0; input < static_cast<int>(model.inputs().size()); ++input) {
    part.inputs.push_back(Node::OfModelInput(input));
  }
  part.input_needs_gradient.assign(part.inputs.size(), false);
  return part;
}

std::vector<ModelPart> SplitModel(const Model& model, absl::Span<const int> device_of) {
  const std::vector<bool> need = NeedGradients(model);
  std::vector<ModelPart> parts;
  for (size_t begin = 0, end = 0; begin < device_of.size(); begin = end) {
    while (end < device_of.size() && device_of[end] == device_of[begin]) ++end;
    parts.push_back(PartOf(model, need, static_cast<int>(begin), static_cast<int>(end)));
  }
  return parts;
}

}  // namespace cairn::nn

// A pipeline stage of a model divided among devices: a run of its nodes, and the tensors that cross its
// borders. A value type.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "nn/model.h"

namespace cairn::nn {

struct PipelineStage {
  int begin = 0, end = 0;  // nodes
  // The values that the stage reads from outside, in the numbering of Node::inputs, each once: inputs of the
  // model, and nodes before `begin`.
  std::vector<int> inputs;
  // [input] True if the input depends on a variable, or on an input of the model that needs a gradient.
  std::vector<bool> input_needs_gradient;
  // The nodes of this stage that later stages read. For the stage with the last node, only that node.
  std::vector<int> outputs;
  std::vector<int> variables;   // indices in the model, ascending
  bool needs_gradient = false;  // the stage has backward work
  bool last = false;            // the stage ends with the model's output
};

PipelineStage WholeModel(const Model& model);
// Stages in the order of the nodes: each is a maximal run of nodes with equal `device_of` [node].
std::vector<PipelineStage> SplitModel(const Model& model, absl::Span<const int> device_of);

}  // namespace cairn::nn

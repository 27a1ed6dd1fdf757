// A run of a model's nodes, and what passes its borders: what one device does of a model that is divided
// among several. Values.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "worker/nn/model.h"

namespace cairn::nn {

struct ModelPart {
  int begin = 0, end = 0;  // nodes
  // What it reads from outside, as Node::inputs calls it, each once: inputs of the model, and nodes before
  // `begin`.
  std::vector<int> inputs;
  std::vector<bool> input_needs_gradient;  // [input] a variable stands before it
  // Nodes of it that are read behind `end`; of the part with the last node that node alone.
  std::vector<int> outputs;
  std::vector<int> variables;   // of the model, rising
  bool needs_gradient = false;  // there is something to do backward
  bool last = false;            // it ends with the model's output
};

ModelPart WholeModel(const Model& model);
// Parts in the order of the nodes: each a longest run of nodes for which `device_of` [node] is the same.
std::vector<ModelPart> SplitModel(const Model& model, absl::Span<const int> device_of);

}  // namespace cairn::nn

#include "worker/tensorboard/graph.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::worker {
namespace {

void SetShape(const Shape& shape, bool batch, tensorboard::v1::Node& node) {
  tensorboard::v1::TensorShape& dims = *(*node.mutable_attr())["_output_shapes"].mutable_list()->add_shape();
  if (batch) dims.add_dim()->set_size(-1);
  for (const int64_t dim : shape.dims()) dims.add_dim()->set_size(dim);
}

}  // namespace

tensorboard::v1::GraphDef GraphOf(const nn::Model& model) {
  tensorboard::v1::GraphDef graph;
  for (const nn::ModelInput& input : model.inputs()) {
    tensorboard::v1::Node& node = *graph.add_node();
    node.set_name(input.name);
    node.set_op("InputLayer");
    SetShape(input.shape, /*batch=*/true, node);
  }
  std::map<std::string, int> uses;  // [layer name] number of nodes so far
  std::vector<std::string> names;   // [node]
  for (const nn::Node& use : model.nodes()) {
    // TensorBoard groups nodes by the part of the name before the slash. A layer that is used again gets
    // another box.
    const int again = uses[use.layer->name()]++;
    const std::string scope =
        again == 0 ? use.layer->name() : absl::StrCat(use.layer->name(), "_use", again + 1);
    names.push_back(absl::StrCat(scope, "/", use.layer->class_name()));
    tensorboard::v1::Node& node = *graph.add_node();
    node.set_name(names.back());
    node.set_op(use.layer->class_name());
    for (const int input : use.inputs) {
      node.add_input(input >= 0 ? names[static_cast<size_t>(input)]
                                : model.inputs()[static_cast<size_t>(-1 - input)].name);
    }
    SetShape(use.output_shape, /*batch=*/true, node);
    if (again > 0) {  // the layer's variables are in its first box
      node.add_input(absl::StrCat("^", use.layer->name(), "/", use.layer->class_name()));
      continue;
    }
    for (const int index : use.variables) {
      const nn::ModelVariable& variable = model.variables()[static_cast<size_t>(index)];
      node.add_input(variable.name);
      tensorboard::v1::Node& held = *graph.add_node();
      held.set_name(variable.name);
      held.set_op("VariableV2");
      SetShape(variable.shape, /*batch=*/false, held);
    }
  }
  return graph;
}

}  // namespace cairn::worker

#include "nn/decoding/decoded_values.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

const Shape& ShapeOf(const Model& model, int value) {
  return value < 0 ? model.inputs()[static_cast<size_t>(Node::OfModelInput(value))].shape
                   : model.nodes()[static_cast<size_t>(value)].output_shape;
}

absl::Status Undecoded(const Node& node) {
  return absl::UnimplementedError(absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(),
                                               ") is not computed step by step"));
}

// The use that the node makes of its inputs, of which one or more are not whole.
absl::StatusOr<StepUse> UseOf(const Model& model, const DecodedValues& values, const Node& node) {
  std::vector<Shape> shapes;
  std::vector<DecodedInput> kinds;
  for (const int input : node.own_inputs()) {
    shapes.push_back(ShapeOf(model, input));
    kinds.push_back(values.Of(input));
  }
  // A mask is whole if what it masks is whole.
  for (size_t i = 0; i < node.masked.size(); ++i) {
    const DecodedInput mask = values.Of(node.inputs[kinds.size() + i]);
    const bool whole = kinds[static_cast<size_t>(node.masked[i])] == DecodedInput::kWhole;
    if (mask != (whole ? DecodedInput::kWhole : DecodedInput::kOnes)) return Undecoded(node);
  }
  const StepUse use = absl::c_linear_search(kinds, DecodedInput::kSteps) ? node.layer->step_use(shapes, kinds)
                                                                         : StepUse::kMixes;
  if (use == StepUse::kMixes) return Undecoded(node);
  return use;
}

// The node of the output: nodes that join a mask to it follow.
int OutputOf(const Model& model) {
  const auto last = static_cast<int>(model.nodes().size()) - 1;
  if (model.joining_nodes() == 0) return last;
  // The last node concatenates the flattened output and its mask.
  const int flattened = model.nodes().back().inputs[0];
  return model.nodes()[static_cast<size_t>(flattened)].inputs[0];
}

}  // namespace

DecodedInput DecodedValues::Of(int value) const {
  return value < 0 ? inputs[static_cast<size_t>(Node::OfModelInput(value))]
                   : nodes[static_cast<size_t>(value)];
}

absl::StatusOr<DecodedValues> ValuesOfSteps(const Model& model, absl::Span<const DecodedInput> inputs) {
  if (model.outputs().size() != 1 || model.outputs()[0].shape.rank() != 2)
    return absl::InvalidArgumentError("the model's output must be one sequence");
  DecodedValues values = {.output = OutputOf(model),
                          .inputs = {inputs.begin(), inputs.end()},
                          .nodes = {},
                          .uses = {},
                          .needed = {}};
  const size_t count = model.nodes().size();
  values.needed.resize(count);
  values.needed[static_cast<size_t>(values.output)] = true;
  for (size_t i = count; i-- > 0;) {
    if (!values.needed[i]) continue;
    for (const int input : model.nodes()[i].inputs) {
      if (input >= 0) values.needed[static_cast<size_t>(input)] = true;
    }
  }
  values.uses.resize(count, StepUse::kEach);
  for (size_t i = 0; i < count; ++i) {
    const Node& node = model.nodes()[i];
    DecodedInput& kind = values.nodes.emplace_back(DecodedInput::kWhole);
    const bool whole =
        absl::c_all_of(node.inputs, [&](int input) { return values.Of(input) == DecodedInput::kWhole; });
    if (whole || !values.needed[i]) continue;
    if (node.layer->is_mask()) {
      kind = DecodedInput::kOnes;
      if (absl::c_any_of(node.inputs, [&](int input) { return values.Of(input) == DecodedInput::kWhole; }))
        return Undecoded(node);
      continue;
    }
    kind = DecodedInput::kSteps;
    CAIRN_ASSIGN_OR_RETURN(values.uses[i], UseOf(model, values, node));
  }
  if (values.Of(values.output) != DecodedInput::kSteps)
    return absl::InvalidArgumentError("the model's output does not depend on the sequence");
  return values;
}

}  // namespace cairn::nn

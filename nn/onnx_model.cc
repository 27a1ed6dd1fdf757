#include "nn/onnx_model.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const float> parameters) {
  std::vector<OnnxVariable> variables;
  for (const ModelVariable& variable : model.variables()) {
    variables.push_back({variable.name, variable.shape,
                         parameters.subspan(static_cast<size_t>(variable.offset),
                                            static_cast<size_t>(variable.shape.num_elements()))});
  }
  return MakeOnnxGraph(model, variables);
}

absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const OnnxVariable> values) {
  OnnxBuilder builder;
  builder.graph_.name = model.name();
  // Variables keep their names: these are reserved first, and all other names avoid them.
  for (const ModelVariable& variable : model.variables()) builder.names_.insert(variable.name);
  std::vector<OnnxValue> inputs;  // [input of the model]
  for (const ModelInput& input : model.inputs()) {
    builder.graph_.inputs.push_back({builder.UniqueName(input.name), input.shape, input.dtype, input.ragged});
    inputs.push_back(builder.FromChannelsLast(builder.graph_.inputs.back().name, input.shape, input.dtype));
    builder.values_.back().ragged = input.ragged;
  }
  std::vector<OnnxValue> outputs;  // [node]
  for (const Node& node : model.nodes()) {
    builder.layer_ = node.layer->name();
    std::vector<OnnxValue> of_node;
    for (const int input : node.inputs) {
      OnnxValue value =
          input < 0 ? inputs[static_cast<size_t>(-1 - input)] : outputs[static_cast<size_t>(input)];
      if (IsInteger(builder.TypeOf(value)) && !node.layer->takes_integers()) {
        value = builder.FromChannelsLast(builder.Cast(builder.ChannelsLast(value), DType::kFloat32),
                                         builder.ShapeOf(value));
      }
      of_node.push_back(value);
    }
    std::vector<OnnxVariable> variables;
    for (const int index : node.variables) variables.push_back(values[static_cast<size_t>(index)]);
    const auto output = node.layer->ToOnnx(of_node, variables, builder);
    if (!output.ok()) {
      return Annotate(output.status(),
                      absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(), ")"));
    }
    outputs.push_back(*output);
  }
  std::string last = builder.ChannelsLast(outputs.back());
  for (const OnnxGraph::Port& input : builder.graph_.inputs) {
    if (input.name == last) last = builder.Add("Identity", {last});  // the model has no operations
  }
  const std::string name = builder.UniqueName(model.nodes().back().layer->name());
  builder.Rename(last, name);
  builder.graph_.output = {name, model.output_shape()};
  return std::move(builder.graph_);
}

}  // namespace cairn::nn

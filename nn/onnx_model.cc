#include "nn/onnx_model.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {

namespace {

// The ids of the values `port`, by the map of the input.
absl::StatusOr<std::string> IdsInOnnx(const ModelInput& input, const std::string& port,
                                      OnnxBuilder& builder) {
  const auto table = input.map->AsTable();
  if (!table.ok()) return Annotate(table.status(), input.map->layer());
  if (input.ragged) {
    return absl::UnimplementedError(absl::StrCat(input.map->layer(), ": input '", input.name,
                                                 "' is ragged, and ONNX has no value for the padding of what "
                                                 "becomes ids"));
  }
  return builder.IdsOf(*table, port, input.shape);
}

}  // namespace

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
  struct Port {
    std::string name;
    DType type;
  };
  std::map<std::string, Port> ports;  // by the name of the model's input
  for (const ModelInput& input : model.inputs()) {
    const bool is_float = input.map != nullptr && input.kind() == ValueKind::kFloat;
    const DType type = is_float ? DType::kFloat32 : input.dtype;
    Port& port = ports[input.name];
    if (port.name.empty()) {  // inputs that different layers map have one name
      port = {builder.UniqueName(input.name), type};
      builder.graph_.inputs.push_back({port.name, input.shape, type, input.ragged, input.text});
    }
    std::string value = type == port.type ? port.name : builder.Cast(port.name, type);
    if (input.map != nullptr) {
      builder.layer_ = input.name;
      CAIRN_ASSIGN_OR_RETURN(value, IdsInOnnx(input, value, builder));
    }
    inputs.push_back(builder.FromChannelsLast(std::move(value), input.shape, input.dtype));
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

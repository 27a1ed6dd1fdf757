#include "nn/onnx_model.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
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

// [output of the model] The node that computes it, before the nodes that join several.
std::vector<size_t> OutputNodes(const Model& model) {
  const size_t count = model.nodes().size() - model.joining_nodes();
  if (model.joining_nodes() == 0) return {count - 1};
  std::vector<size_t> nodes;
  size_t next = 0;
  for (const ModelOutput& output : model.outputs()) {
    const auto joined = static_cast<size_t>(model.nodes().back().inputs[next]);
    const bool flattened = output.shape.rank() != 1;
    nodes.push_back(flattened ? static_cast<size_t>(model.nodes()[joined].inputs[0]) : joined);
    next += output.masked ? 2 : 1;
  }
  return nodes;
}

}  // namespace

// Writes one model.
class OnnxModelWriter {
 public:
  OnnxModelWriter(const Model& model, absl::Span<const OnnxVariable> values)
      : model_(model), values_(values) {
    builder_.graph_.name = model.name();
    // Variables keep their names: these are reserved first, and all other names avoid them.
    for (const ModelVariable& variable : model.variables()) builder_.names_.insert(variable.name);
  }

  absl::StatusOr<OnnxGraph> Write() {
    CAIRN_RETURN_IF_ERROR(AddInputs());
    const size_t count = model_.nodes().size() - model_.joining_nodes();
    for (const Node& node : absl::MakeConstSpan(model_.nodes()).first(count)) {
      const absl::Status status = AddNode(node);
      if (status.ok()) continue;
      return Annotate(status,
                      absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(), ")"));
    }
    AddOutputs();
    return std::move(builder_.graph_);
  }

 private:
  absl::Status AddInputs() {
    struct Port {
      std::string name;
      DType type;
    };
    std::map<std::string, Port> ports;  // by the name of the model's input
    for (const ModelInput& input : model_.inputs()) {
      const bool is_float = input.map != nullptr && input.kind() == ValueKind::kFloat;
      const DType type = is_float ? DType::kFloat32 : input.dtype;
      Port& port = ports[input.name];
      if (port.name.empty()) {  // inputs that different layers map have one name
        port = {builder_.UniqueName(input.name), type};
        builder_.graph_.inputs.push_back({port.name, input.shape, type, input.ragged, input.text});
      }
      std::string value = type == port.type ? port.name : builder_.Cast(port.name, type);
      if (input.map != nullptr) {
        builder_.layer_ = input.name;
        CAIRN_ASSIGN_OR_RETURN(value, IdsInOnnx(input, value, builder_));
      }
      inputs_.push_back(builder_.FromChannelsLast(std::move(value), input.shape, input.dtype));
      builder_.values_.back().ragged = input.ragged;
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(const Node& node) {
    builder_.layer_ = node.layer->name();
    builder_.masked_ = node.masked;
    std::vector<OnnxValue> of_node;
    for (const int input : node.inputs) {
      OnnxValue value = input < 0 ? inputs_[static_cast<size_t>(Node::OfModelInput(input))]
                                  : results_[static_cast<size_t>(input)];
      if (IsInteger(builder_.TypeOf(value)) && !node.layer->takes_integers()) {
        value = builder_.FromChannelsLast(builder_.Cast(builder_.ChannelsLast(value), DType::kFloat32),
                                          builder_.ShapeOf(value));
      }
      of_node.push_back(value);
    }
    std::vector<OnnxVariable> variables;
    for (const int index : node.variables) variables.push_back(values_[static_cast<size_t>(index)]);
    CAIRN_ASSIGN_OR_RETURN(results_.emplace_back(), node.layer->ToOnnx(of_node, variables, builder_));
    return absl::OkStatus();
  }

  void AddOutputs() {
    std::vector<std::string> values;  // [output of the model]
    for (const size_t node : OutputNodes(model_)) {
      builder_.layer_ = model_.nodes()[node].layer->name();
      std::string value = builder_.ChannelsLast(results_[node]);
      // An input of the graph, or another output, has a name already.
      const bool is_input = absl::c_any_of(builder_.graph_.inputs,
                                           [&](const OnnxGraph::Port& input) { return input.name == value; });
      if (is_input || absl::c_linear_search(values, value)) value = builder_.Add("Identity", {value});
      values.push_back(std::move(value));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const ModelOutput& output = model_.outputs()[i];
      const std::string name = builder_.UniqueName(output.name);
      builder_.Rename(values[i], name);
      builder_.graph_.outputs.push_back({name, output.shape});
    }
  }

  const Model& model_;
  const absl::Span<const OnnxVariable> values_;  // [variable of the model]
  OnnxBuilder builder_;
  std::vector<OnnxValue> inputs_;   // [input of the model]
  std::vector<OnnxValue> results_;  // [node]
};

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
  return OnnxModelWriter(model, values).Write();
}

}  // namespace cairn::nn

// Adds the calls of a ModelGraph to a ModelBuilder, those of models within it in the place of their call.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "nn/layers/input_layer.h"
#include "nn/model_graph.h"

namespace cairn::nn {
namespace {

using CallKey = std::pair<std::string, int64_t>;  // the layer's name, the number of the call

struct Call {
  const GraphLayer* layer;
  CallKey key;
  const std::vector<Tensor>& inputs() const { return arguments().inputs; }
  const GraphLayer::Call& arguments() const { return layer->calls[static_cast<size_t>(key.second)]; }
};

// Returns the positions of `calls` in an order in which inputs come before their users: the order in which
// repeated passes over the file would add the calls, if each pass added every call whose inputs have been
// added. `pass` [call] is the number of the pass that adds the call.
absl::StatusOr<std::vector<size_t>> OrderOf(const std::vector<Call>& calls) {
  std::map<CallKey, size_t> position_of;
  for (size_t i = 0; i < calls.size(); ++i) position_of.emplace(calls[i].key, i);
  std::vector<size_t> missing(calls.size());  // [call] number of inputs that are not in the order yet
  std::vector<std::vector<size_t>> users(calls.size());  // [call] the calls that read its output
  std::vector<size_t> pass(calls.size()), ready;
  for (size_t i = 0; i < calls.size(); ++i) {
    for (const Tensor& input : calls[i].inputs()) {
      const auto found = position_of.find({input.layer, input.call});
      if (found == position_of.end()) continue;  // an input of the model
      users[found->second].push_back(i);
      ++missing[i];
    }
    if (missing[i] == 0) ready.push_back(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t done = ready.back();
    ready.pop_back();
    order.push_back(done);
    for (const size_t user : users[done]) {
      pass[user] = std::max(pass[user], done < user ? pass[done] : pass[done] + 1);
      if (--missing[user] == 0) ready.push_back(user);
    }
  }
  if (order.size() < calls.size()) {
    const auto blocked = std::find_if(missing.rbegin(), missing.rend(), [](size_t n) { return n > 0; });
    const auto position = static_cast<size_t>(missing.rend() - blocked) - 1;
    return absl::InvalidArgumentError(absl::StrCat(
        calls[position].layer->read.where, ": inbound_nodes: its inputs depend on a cycle in the graph"));
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(pass[a], a) < std::pair(pass[b], b); });
  return order;
}

// One call of a model: the values of its tensors.
class GraphCall {
 public:
  GraphCall(const ModelGraph& graph, ModelBuilder& builder) : graph_(graph), builder_(builder) {
    for (const GraphLayer& layer : graph.layers) layers_.emplace(layer.read.local_name, &layer);
  }

  // The InputLayer of the graph's input `tensor`.
  absl::StatusOr<const GraphLayer*> InputLayer(const Tensor& tensor) const {
    const auto found = layers_.find(tensor.layer);
    if (found == layers_.end() || !found->second->is_input()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: input_layers: '", tensor.layer, "' is not an InputLayer of the file"));
    }
    if (values_.count(tensor) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: input_layers: '", tensor.layer, "' appears twice"));
    }
    return found->second;
  }

  // Values are in the numbering of Node::inputs.
  void SetInput(const Tensor& tensor, int value) { values_[tensor] = value; }
  int ValueOf(const Tensor& tensor) const { return values_.at(tensor); }
  bool has(const Tensor& tensor) const { return values_.count(tensor) > 0; }
  // The values of the outputs, each of the first call that has been added and needs it.
  std::vector<int> OutputsOf(const GraphLayer& layer) const {
    std::map<int64_t, int> first;  // [output]
    const std::string& name = layer.read.local_name;
    for (auto at = values_.lower_bound({.layer = name}); at != values_.end() && at->first.layer == name; ++at)
      first.emplace(at->first.output, at->second);
    std::vector<int> outputs;
    for (const auto& [output, value] : first) outputs.push_back(value);
    return outputs;
  }

  // Adds the calls that `outputs` depend on, in the file's order as far as the graph allows. All inputs must have
  // been set. A single output comes last.
  absl::Status Add(absl::Span<const Tensor> outputs) {
    for (const Tensor& output : outputs) CAIRN_RETURN_IF_ERROR(MarkNeeded(output));
    const std::vector<Call> calls = NeededCalls();
    CAIRN_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(calls));
    for (const size_t position : order) {
      const Call& call = calls[position];
      std::vector<int> inputs;
      for (const Tensor& input : call.inputs()) inputs.push_back(values_.at(input));
      CAIRN_RETURN_IF_ERROR(CheckMasks(call, inputs));
      if (call.layer->model != nullptr) {
        const auto status = AddNested(call, inputs);
        if (!status.ok()) return Annotate(status, call.layer->read.where);
        continue;
      }
      if (call.layer->read.function != nullptr) {
        for (const int64_t number : needed_.at(call.key)) {
          CAIRN_ASSIGN_OR_RETURN(values_[OutputOf(call, number)],
                                 builder_.AddFunction(call.layer->read, inputs, number));
        }
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(const int made,
                             builder_.AddNode(call.layer->read, inputs, call.arguments().takes_masks));
      if (call.layer->read.layer->num_outputs() == 1) {
        values_[OutputOf(call, 0)] = made;
        continue;
      }
      for (const int64_t number : needed_.at(call.key)) {
        CAIRN_ASSIGN_OR_RETURN(values_[OutputOf(call, number)],
                               builder_.AddOutputOf(made, static_cast<int>(number)));
      }
    }
    return absl::OkStatus();
  }

  // The shapes of all outputs of a layer or function with several, of its first call that has been added. Empty for
  // others.
  std::vector<Shape> OutputShapesOf(const GraphLayer& layer) const {
    const auto& function = layer.read.function;
    const bool has_several = function != nullptr
                                 ? function->has_several_outputs()
                                 : layer.read.layer != nullptr && layer.read.layer->num_outputs() > 1;
    if (!has_several) return {};
    const auto called = values_.lower_bound({.layer = layer.read.local_name});
    std::vector<Shape> inputs, outputs;
    for (const Tensor& input : layer.calls[static_cast<size_t>(called->first.call)].inputs)
      inputs.push_back(builder_.ShapeOf(values_.at(input)));
    if (function == nullptr) return layer.read.layer->OutputShapes(inputs);
    int64_t count = 1;
    for (int64_t output = 0; output < count; ++output) {
      const auto of_output = function->LayersFor(inputs, output);
      if (!of_output.ok()) return {};
      count = of_output->num_outputs;
      outputs.push_back(of_output->output_shape);
    }
    return outputs;
  }

 private:
  static Tensor OutputOf(const Call& call, int64_t output) {
    return {.layer = call.key.first, .call = call.key.second, .output = output};
  }

  // Whether `mask` is computed only by comparisons that a layer of the model makes too: of the same tensor with the
  // layer's masked value.
  bool IsKerasMask(const Tensor& mask) const {
    std::vector<Tensor> open = {mask};
    std::set<std::string> seen;
    while (!open.empty()) {
      const Tensor tensor = open.back();
      open.pop_back();
      const auto found = graph_.mask_functions.find(tensor.layer);
      if (found == graph_.mask_functions.end()) return false;
      if (!seen.insert(tensor.layer).second) continue;
      const MaskFunction& function = found->second;
      if (function.class_name == "NotEqual") {
        if (!IsComparisonOfLayer(function)) return false;
      } else if (function.class_name != "OnesLike" && function.class_name != "ZerosLike") {
        open.insert(open.end(), function.inputs.begin(), function.inputs.end());
      }
    }
    return true;
  }

  // Whether a layer masks the steps of the same tensor that have the same value.
  bool IsComparisonOfLayer(const MaskFunction& function) const {
    if (function.inputs.size() != 1 || !function.number.has_value()) return false;
    return absl::c_any_of(graph_.layers, [&](const GraphLayer& layer) {
      if (layer.read.layer == nullptr || layer.read.layer->masked_value() != function.number) return false;
      return absl::c_any_of(layer.calls, [&](const GraphLayer::Call& call) {
        return !call.inputs.empty() && call.inputs[0] == function.inputs[0];
      });
    });
  }

  // INVALID_ARGUMENT if a mask of the call is not the one that Keras computes from the layers before it.
  absl::Status CheckMasks(const Call& call, absl::Span<const int> inputs) const {
    for (const Tensor& mask : call.arguments().masks) {
      const bool known =
          IsKerasMask(mask) && absl::c_any_of(inputs, [&](int input) { return builder_.HasMask(input); });
      if (known) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(call.layer->read.where, ": inbound_nodes: mask: '", mask.layer,
                       "' is not a mask of Embedding(mask_zero=True) or Masking, and no other mask is "
                       "supported"));
    }
    return absl::OkStatus();
  }

  // The calls that are needed, in the file's order.
  std::vector<Call> NeededCalls() const {
    std::vector<Call> calls;
    for (const GraphLayer& layer : graph_.layers) {
      for (int64_t call = 0; call < static_cast<int64_t>(layer.calls.size()); ++call) {
        CallKey key = {layer.read.local_name, call};
        if (needed_.count(key) > 0) calls.push_back({&layer, std::move(key)});
      }
    }
    return calls;
  }

  // Checks that the tensor exists.
  absl::Status Check(const Tensor& tensor, absl::string_view user) const {
    const auto found = layers_.find(tensor.layer);
    const auto mask = graph_.mask_functions.find(tensor.layer);
    if (found == layers_.end() && mask != graph_.mask_functions.end()) {
      CAIRN_RETURN_IF_ERROR(mask->second.fault);
      return absl::InvalidArgumentError(absl::StrCat(user, ": '", tensor.layer, "' (",
                                                     mask->second.class_name,
                                                     ") is a function of keras.ops, and is supported only to "
                                                     "compute masks: use a layer"));
    }
    if (found == layers_.end())
      return absl::InvalidArgumentError(absl::StrCat(user, ": there is no layer '", tensor.layer, "'"));
    const GraphLayer& layer = *found->second;
    if (layer.is_input() && values_.count(tensor) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(user, ": input '", tensor.layer, "' is not among input_layers"));
    }
    const auto calls = static_cast<int64_t>(layer.calls.size());
    if (!layer.is_input() && tensor.call >= calls) {
      return absl::InvalidArgumentError(absl::StrCat(user, ": layer '", tensor.layer, "' is called ", calls,
                                                     " times, not ", tensor.call + 1));
    }
    // AddFunction() counts the outputs of a function.
    if (layer.read.function != nullptr && layer.read.function->has_several_outputs()) return absl::OkStatus();
    const int64_t outputs = layer.model != nullptr        ? static_cast<int64_t>(layer.model->outputs.size())
                            : layer.read.layer != nullptr ? layer.read.layer->num_outputs()
                                                          : 1;
    if (tensor.output >= outputs) {
      return absl::InvalidArgumentError(absl::StrCat(user, ": layer '", tensor.layer, "' has ", outputs,
                                                     outputs == 1 ? " output, not " : " outputs, not ",
                                                     tensor.output + 1));
    }
    return absl::OkStatus();
  }

  absl::Status MarkNeeded(const Tensor& output) {
    CAIRN_RETURN_IF_ERROR(Check(output, "config: output_layers"));
    std::vector<Tensor> open = {output};
    while (!open.empty()) {
      const Tensor tensor = open.back();
      open.pop_back();
      const GraphLayer& layer = *layers_.at(tensor.layer);
      if (layer.is_input()) continue;
      const auto [call, fresh] = needed_.try_emplace({tensor.layer, tensor.call});
      call->second.insert(tensor.output);
      if (!fresh) continue;
      for (const Tensor& input : layer.calls[static_cast<size_t>(tensor.call)].inputs) {
        CAIRN_RETURN_IF_ERROR(Check(input, absl::StrCat(layer.read.where, ": inbound_nodes")));
        open.push_back(input);
      }
    }
    return absl::OkStatus();
  }

  // Adds the calls within a model that is called on `inputs`.
  absl::Status AddNested(const Call& call, const std::vector<int>& inputs) {
    CAIRN_RETURN_IF_ERROR(builder_.CountCall());
    const ModelGraph& model = *call.layer->model;
    if (inputs.size() != model.inputs.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("is called on ", inputs.size(), " tensors, and has ", model.inputs.size(), " inputs"));
    }
    GraphCall inner(model, builder_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const GraphLayer* const input, inner.InputLayer(model.inputs[i]));
      const Shape& shape = builder_.ShapeOf(inputs[i]);
      if (input->read.has_input_shape && !builder_.IsRagged(inputs[i]) &&
          !Fits(shape, input->read.input_shape)) {
        return absl::InvalidArgumentError(absl::StrCat("is called on ", shape.ToString(), ", and its input '",
                                                       input->read.local_name, "' is ",
                                                       ToString(input->read.input_shape)));
      }
      inner.SetInput(model.inputs[i], inputs[i]);
    }
    const std::set<int64_t>& numbers = needed_.at(call.key);
    std::vector<Tensor> outputs;
    for (const int64_t number : numbers) outputs.push_back(model.outputs[static_cast<size_t>(number)]);
    CAIRN_RETURN_IF_ERROR(inner.Add(outputs));
    for (const int64_t number : numbers)
      values_[OutputOf(call, number)] = inner.ValueOf(model.outputs[static_cast<size_t>(number)]);
    return absl::OkStatus();
  }

  const ModelGraph& graph_;
  ModelBuilder& builder_;
  std::map<std::string, const GraphLayer*> layers_;  // by their names in the graph
  std::map<CallKey, std::set<int64_t>> needed_;      // the calls that are needed, and which of their outputs
  std::map<Tensor, int> values_;
};

// "(None, 28, 28)"
std::string KerasShape(const Shape& shape) {
  return absl::StrCat("(None", shape.rank() > 0 ? ", " : "", absl::StrJoin(shape.dims(), ", "), ")");
}

std::string KerasShape(int value, const ModelBuilder& builder) {
  return builder.IsRagged(value) ? "(None, None)" : KerasShape(builder.ShapeOf(value));
}

void CollectVariables(const GraphLayer& layer, const ModelBuilder& builder, std::set<int>& variables) {
  if (layer.read.layer != nullptr) {
    const std::vector<int> own = builder.VariablesOf(*layer.read.layer);
    variables.insert(own.begin(), own.end());
  }
  if (layer.model == nullptr) return;
  for (const GraphLayer& inner : layer.model->layers) CollectVariables(inner, builder, variables);
}

// The row of `layer` in the summary of the model that has been added by `call`.
SummaryRow RowOf(const GraphLayer& layer, const GraphCall& call, const ModelBuilder& builder) {
  SummaryRow row = {.name = layer.read.local_name,
                    .class_name = layer.is_input()                 ? "InputLayer"
                                  : layer.model != nullptr         ? layer.model->class_name
                                  : layer.read.function != nullptr ? layer.read.function->class_name()
                                                                   : layer.read.layer->class_name()};
  std::vector<std::string> shapes;
  for (const Shape& shape : call.OutputShapesOf(layer)) shapes.push_back(KerasShape(shape));
  if (shapes.empty()) {
    for (const int value : call.OutputsOf(layer)) shapes.push_back(KerasShape(value, builder));
  }
  row.output_shape = shapes.size() == 1 ? shapes[0] : absl::StrCat("[", absl::StrJoin(shapes, ", "), "]");
  std::set<int> variables;
  CollectVariables(layer, builder, variables);
  row.variables.assign(variables.begin(), variables.end());
  for (const GraphLayer::Call& of_layer : layer.calls) {
    for (const Tensor& input : of_layer.inputs) {
      if (!call.has(input)) continue;
      row.connected_to.push_back(absl::StrCat(input.layer, "[", input.call, "][", input.output, "]"));
    }
  }
  return row;
}

}  // namespace

absl::Status AddModel(const ModelGraph& graph, ModelBuilder& builder) {
  const bool functional = graph.class_name != "Sequential";
  builder.SetName(graph.name, functional);
  GraphCall call(graph, builder);
  for (const Tensor& tensor : graph.inputs) {
    CAIRN_ASSIGN_OR_RETURN(const GraphLayer* const input, call.InputLayer(tensor));
    call.SetInput(tensor, builder.AddInput(input->read, ToShape(input->read.input_shape)));
  }
  CAIRN_RETURN_IF_ERROR(call.Add(graph.outputs));
  std::vector<NamedValue> outputs;
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    outputs.push_back({graph.NameOfOutput(i), call.ValueOf(graph.outputs[i])});
  CAIRN_RETURN_IF_ERROR(builder.AddOutputs(outputs));
  CAIRN_RETURN_IF_ERROR(builder.CheckUsed());
  for (const GraphLayer& layer : graph.layers) {
    if (layer.is_input() && !functional) continue;  // Keras does not show the input of a Sequential
    if (!call.OutputsOf(layer).empty()) builder.AddRow(RowOf(layer, call, builder));
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn

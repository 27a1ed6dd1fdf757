#include "nn/model_builder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/functions/keras_functions.h"
#include "nn/input_uses.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/regularizer.h"
#include "nn/layers/id_layer.h"
#include "nn/layers/layer_registry.h"
#include "nn/layers/select_output.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The largest number of parameters that a large machine can hold twice, as values and as gradients.
constexpr int64_t kMaxParameters = int64_t{1} << 32;
// Bounds the calls of nested models, whose number grows exponentially with the depth.
constexpr int kMaxCalls = 1 << 16;

// The use that layers which take integers make of a value, directly or behind layers that only reshape it.
enum class IntegerUse { kNone, kCompared, kLookedUp };

IntegerUse IntegerUseOf(const std::vector<Node>& nodes, int source) {
  IntegerUse use = IntegerUse::kNone;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (!node.layer->takes_integers() || node.layer->is_mask()) continue;
    if (ComparesValues(node.layer->class_name())) {
      if (absl::c_linear_search(node.inputs, source)) use = std::max(use, IntegerUse::kCompared);
    } else if (node.inputs[0] == source) {
      const bool reshapes = OnlyReshapes(node.layer->class_name());
      use = std::max(use, reshapes ? IntegerUseOf(nodes, static_cast<int>(i)) : IntegerUse::kLookedUp);
    }
  }
  return use;
}

std::vector<Shape> ShapesOf(absl::Span<const int> values, const ModelBuilder& builder) {
  std::vector<Shape> shapes;
  for (const int value : values) shapes.push_back(builder.ShapeOf(value));
  return shapes;
}

// INVALID_ARGUMENT unless the layer takes so many inputs.
absl::Status CheckInputs(const ReadLayer& layer, size_t inputs) {
  const bool merges = layer.layer->merges();
  const int states = layer.layer->num_states();
  const bool may_be_weighted =
      layer.layer->row_table() != nullptr || layer.layer->class_name() == "CategoryEncoding";
  const bool has_states = states > 0 && static_cast<int>(inputs) == 1 + states;
  if (merges == (inputs > 1) || may_be_weighted || has_states) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(layer.where, ": ", inputs, " inputs, expected ", merges ? "two or more" : "one",
                   states > 0 ? absl::StrCat(", or with an initial_state ", 1 + states) : ""));
}

// A layer that is called k times in a step moves an average k times, as in Keras: v becomes
// m^k v + (1 - m) (m^(k-1) b_1 + ... + b_k), where b_i are the statistics of its calls. So m^k is the
// variable's momentum, and the sum of the weighted statistics of all calls is the value of the step.
void WeighStatistics(std::vector<Node>& nodes, std::vector<ModelVariable>& variables) {
  std::map<const Layer*, std::vector<size_t>> calls;
  for (size_t i = 0; i < nodes.size(); ++i) calls[nodes[i].layer.get()].push_back(i);
  for (const auto& [layer, of_layer] : calls) {
    if (of_layer.size() == 1) continue;
    for (const int index : nodes[of_layer[0]].variables) {
      ModelVariable& variable = variables[static_cast<size_t>(index)];
      if (variable.trainable() || *variable.moving_average_momentum == 1) continue;
      const double momentum = *variable.moving_average_momentum;
      double sum = 0, weight = 1;
      std::vector<double> weights(of_layer.size());  // [call]
      for (size_t call = of_layer.size(); call-- > 0; weight *= momentum) sum += weights[call] = weight;
      variable.moving_average_momentum = static_cast<float>(weight);
      for (size_t call = 0; call < of_layer.size(); ++call)
        nodes[of_layer[call]].statistics_weight = static_cast<float>(weights[call] / sum);
    }
  }
}

// Whether the value is an Embedding's of a ragged input: the mean over an example's rows, as one step.
bool IsMeanOfRows(const Model& model, int value) {
  if (value < 0) return false;
  const Node& node = model.nodes()[static_cast<size_t>(value)];
  return node.layer->class_name() == "Embedding" && node.inputs[0] < 0 &&
         model.inputs()[static_cast<size_t>(Node::OfModelInput(node.inputs[0]))].ragged;
}

}  // namespace

int ModelBuilder::AddInput(const ReadLayer& layer, const Shape& shape) {
  model_.inputs_.push_back({.name = layer.name,
                            .shape = shape,
                            .dtype = layer.input_type,
                            .ragged = layer.ragged,
                            .text = layer.text});
  mapped_from_.push_back(-1);
  return Node::OfModelInput(static_cast<int>(model_.inputs_.size()) - 1);
}

absl::StatusOr<int> ModelBuilder::AddMappedInput(const ReadLayer& layer, int value) {
  const auto fault = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(layer.where, ": ", what...));
  };
  const auto from = static_cast<size_t>(Node::OfModelInput(value));
  if (value >= 0) {
    return fault("reads the output of layer '", model_.nodes_[static_cast<size_t>(value)].layer->name(),
                 "', but its values must be an input of the model");
  }
  if (mapped_from_[from] >= 0) {
    return fault("reads the ids of ", model_.inputs_[from].map->layer(),
                 ", but its values must be an input of the model");
  }
  const auto& ids = static_cast<const IdLayer&>(*layer.layer);
  ModelInput input = model_.inputs_[from];
  input.map = ids.map();
  if (!ids.encodes()) input.ids_layer = layer.layer;
  input.dtype = DType::kInt64;
  if (!input.map->Takes(input.kind())) {
    return fault("cannot take the values of input '", input.name, "', which are ",
                 input.text ? "strings" : "numbers, not strings: give the Input dtype=\"string\"");
  }
  if (const auto ids_per_text = input.map->ids_per_text()) {
    if (input.ragged || input.shape.num_elements() != 1)
      return fault("input '", input.name, "' must have one text for each example: shape [1]");
    input.ragged = *ids_per_text == 0;
    input.shape = {std::max<int64_t>(*ids_per_text, 1)};
  }
  for (size_t i = 0; i < mapped_from_.size(); ++i) {
    if (mapped_from_[i] == static_cast<int>(from) && model_.inputs_[i].map == input.map)
      return Node::OfModelInput(static_cast<int>(i));
  }
  model_.inputs_.push_back(std::move(input));
  mapped_from_.push_back(static_cast<int>(from));
  return Node::OfModelInput(static_cast<int>(model_.inputs_.size()) - 1);
}

absl::Status ModelBuilder::FinishInputs() {
  const size_t count = model_.inputs_.size();
  std::vector<bool> is_read(count), is_mapped(count);
  for (const Node& node : model_.nodes_) {
    for (const int input : node.inputs) {
      if (input < 0) is_read[static_cast<size_t>(Node::OfModelInput(input))] = true;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (mapped_from_[i] >= 0 && is_read[i]) is_mapped[static_cast<size_t>(mapped_from_[i])] = true;
  }
  std::vector<ModelInput> ordered;
  std::vector<int> new_index(count);
  const auto keep = [&](size_t i) {
    new_index[i] = static_cast<int>(ordered.size());
    ordered.push_back(std::move(model_.inputs_[i]));
  };
  for (size_t i = 0; i < count; ++i) {
    if (mapped_from_[i] >= 0) continue;
    // An input that layers map is not an input of the network itself, unless another layer reads its values.
    if (is_read[i] || !is_mapped[i]) keep(i);
    for (size_t mapped = 0; mapped < count; ++mapped) {
      if (mapped_from_[mapped] == static_cast<int>(i) && is_read[mapped]) keep(mapped);
    }
  }
  model_.inputs_ = std::move(ordered);
  for (Node& node : model_.nodes_) {
    for (int& input : node.inputs) {
      if (input < 0) input = Node::OfModelInput(new_index[static_cast<size_t>(Node::OfModelInput(input))]);
    }
  }
  return CheckInputUses(model_);
}

absl::Status ModelBuilder::CheckOutput(const NamedValue& output) const {
  if (model_.nodes_.empty() && !model_.functional_) {
    return absl::InvalidArgumentError(
        "config: layers: the list has only an InputLayer and layers that make ids of it");
  }
  // An output that no node computes is an input, or its ids.
  if (output.value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: output_layers: '", output.name, "' is not computed by the network"));
  }
  if (!HasMask(output.value) || ShapeOf(output.value).rank() == 2) return absl::OkStatus();
  const Layer& layer = *model_.nodes_[static_cast<size_t>(output.value)].layer;
  return absl::InvalidArgumentError(absl::StrCat(
      "layer '", layer.name(), "' (", layer.class_name(), ") gives an output ",
      ShapeOf(output.value).ToString(),
      " of the model, whose time steps have a mask (of mask_zero or Masking): a loss can leave masked "
      "steps out only of [steps,features]"));
}

absl::Status ModelBuilder::AddOutputs(absl::Span<const NamedValue> outputs) {
  int64_t begin = 0;
  std::set<std::string> given, taken;
  for (const NamedValue& output : outputs) given.insert(output.name);
  for (const NamedValue& output : outputs) {
    CAIRN_RETURN_IF_ERROR(CheckOutput(output));
    std::string name = output.name;
    for (int suffix = 1; taken.count(name) > 0 || (suffix > 1 && given.count(name) > 0); ++suffix)
      name = absl::StrCat(output.name, "_", suffix);
    taken.insert(name);
    const Shape& shape = ShapeOf(output.value);
    model_.outputs_.push_back(
        {.name = std::move(name), .shape = shape, .begin = begin, .masked = HasMask(output.value)});
    begin += shape.num_elements() + (HasMask(output.value) ? shape[0] : 0);
  }
  if (outputs.size() == 1 && !HasMask(outputs[0].value)) return absl::OkStatus();
  const size_t before = model_.nodes_.size();
  const auto add = [this](const char* class_name, std::vector<int> inputs) {
    const json config = json::object();
    ConfigReader reader(config);
    return AddOwnNode(FindLayer(class_name)("outputs", reader), std::move(inputs), "");
  };
  const auto add_mask = [this](std::shared_ptr<const Layer> layer, std::vector<int> inputs) {
    return AddOwnNode(std::move(layer), std::move(inputs), "");
  };
  std::vector<int> joined;
  for (const NamedValue& output : outputs) {
    joined.push_back(output.value);
    if (ShapeOf(output.value).rank() != 1) {
      CAIRN_ASSIGN_OR_RETURN(joined.back(), add("Flatten", {output.value}));
    }
    if (!HasMask(output.value)) continue;
    CAIRN_ASSIGN_OR_RETURN(joined.emplace_back(), masks_.NodeOf(output.value, add_mask));
  }
  CAIRN_RETURN_IF_ERROR(add("Concatenate", std::move(joined)).status());
  model_.joining_nodes_ = model_.nodes_.size() - before;
  return absl::OkStatus();
}

absl::StatusOr<int> ModelBuilder::AddOwnNode(std::shared_ptr<const Layer> layer, std::vector<int> inputs,
                                             const std::string& device) {
  CAIRN_ASSIGN_OR_RETURN(Shape output, layer->OutputShape(ShapesOf(inputs, *this)));
  CAIRN_ASSIGN_OR_RETURN(output, Shape::FromUntrusted(output.dims()));
  model_.nodes_.push_back({.layer = std::move(layer),
                           .inputs = std::move(inputs),
                           .output_shape = std::move(output),
                           .variables = {},
                           .device = device});
  return static_cast<int>(model_.nodes_.size()) - 1;
}

const Shape& ModelBuilder::ShapeOf(int value) const {
  return value < 0 ? model_.inputs_[static_cast<size_t>(-1 - value)].shape
                   : model_.nodes_[static_cast<size_t>(value)].output_shape;
}

absl::StatusOr<int> ModelBuilder::AddActivityNode(const ReadLayer& layer, int of) {
  CAIRN_ASSIGN_OR_RETURN(const int added, AddOwnNode(layer.activity, {of}, layer.device));
  CAIRN_RETURN_IF_ERROR(masks_.AddOutput(*layer.activity, {of}, added));
  return added;
}

absl::StatusOr<int> ModelBuilder::AddNode(const ReadLayer& layer, const std::vector<int>& inputs,
                                          bool takes_masks) {
  if (inputs.size() == 1 && ComputesIds(layer.layer->class_name()) &&
      layer.layer->class_name() != "CategoryEncoding") {
    CAIRN_ASSIGN_OR_RETURN(const int ids, AddMappedInput(layer, inputs[0]));
    if (!static_cast<const IdLayer&>(*layer.layer).encodes()) return ids;
    return AddLayerNode(layer, {ids}, takes_masks);
  }
  CAIRN_ASSIGN_OR_RETURN(const int made, AddLayerNode(layer, inputs, takes_masks));
  return layer.activity == nullptr ? made : AddActivityNode(layer, made);
}

absl::StatusOr<int> ModelBuilder::AddLayerNode(const ReadLayer& layer, const std::vector<int>& inputs,
                                               bool takes_masks) {
  CAIRN_RETURN_IF_ERROR(CheckInputs(layer, inputs.size()));
  const std::vector<Shape> shapes = ShapesOf(inputs, *this);
  auto output = layer.layer->OutputShape(shapes);
  if (!output.ok()) return Annotate(output.status(), layer.where);
  if (const auto status = CountCall(); !status.ok()) return Annotate(status, layer.where);
  Node node = {.layer = layer.layer,
               .inputs = inputs,
               .output_shape = {},
               .variables = {},
               .device = layer.device,
               .groups = layer.groups};
  auto bounded = Shape::FromUntrusted(output->dims());
  if (!bounded.ok()) return Annotate(bounded.status(), layer.where);
  node.output_shape = *std::move(bounded);
  if (takes_masks) {
    if (const auto status = TakeMasks(node); !status.ok()) return Annotate(status, layer.where);
  }
  if (const auto status = AddVariables(layer, shapes, node); !status.ok())
    return Annotate(status, layer.where);
  model_.nodes_.push_back(std::move(node));
  const int made = static_cast<int>(model_.nodes_.size()) - 1;
  if (absl::c_any_of(inputs, [this](int input) { return IsRagged(input); })) return made;  // nothing pads it
  if (const auto status = masks_.AddOutput(*layer.layer, inputs, made); !status.ok())
    return Annotate(status, layer.where);
  return made;
}

absl::StatusOr<int> ModelBuilder::AddFunction(const ReadLayer& function, const std::vector<int>& inputs,
                                              int64_t output) {
  const auto fault = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(function.where, ": ", what));
  };
  auto call = function.function->LayersFor(ShapesOf(inputs, *this), output);
  if (!call.ok()) return fault(call.status().message());
  for (const int input : inputs) {
    if (IsRagged(input) || IsMeanOfRows(model_, input))
      return fault("its input is ragged, or an Embedding's of a ragged input: use GlobalAveragePooling1D");
  }
  // Whether Keras keeps the mask depends on its backend: it does where the function returns the same array.
  if (call->is_identity && HasMask(inputs[0]))
    return fault("changes nothing here, and its input has a mask of time steps: remove the function");
  std::vector<int> made;  // [step]
  for (FunctionStep& step : call->steps) {
    if (const auto status = CountCall(); !status.ok()) return fault(status.message());
    std::vector<int> read;
    for (const int value : step.inputs)
      read.push_back(value < 0 ? inputs[static_cast<size_t>(-1 - value)] : made[static_cast<size_t>(value)]);
    const auto node = AddOwnNode(std::move(step.layer), std::move(read), function.device);
    if (!node.ok()) return fault(node.status().message());
    made.push_back(*node);
  }
  return made.back();
}

absl::StatusOr<int> ModelBuilder::AddOutputOf(int node, int output) {
  // `node` is that of the layer, or of a penalty on all of its outputs, which passes them on.
  const Node* of = &model_.nodes_[static_cast<size_t>(node)];
  if (of->layer->num_outputs() == 1) of = &model_.nodes_[static_cast<size_t>(of->inputs[0])];
  const std::vector<Shape> shapes = of->layer->OutputShapes(ShapesOf(of->own_inputs(), *this));
  const auto layer = MakeSelectOutput(of->layer->name(), shapes, output);
  CAIRN_ASSIGN_OR_RETURN(const int made, AddOwnNode(layer, {node}, of->device));
  CAIRN_RETURN_IF_ERROR(masks_.AddOutput(*layer, {node}, made));
  return made;
}

absl::Status ModelBuilder::CountCall() {
  if (++calls_ <= kMaxCalls) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the model has more than ", kMaxCalls, " calls of layers"));
}

absl::Status ModelBuilder::TakeMasks(Node& node) {
  const MaskUse use = node.layer->mask_use();
  if (use != MaskUse::kTakes && use != MaskUse::kTakesAndPasses && use != MaskUse::kTakesAndPassesFirst)
    return absl::OkStatus();
  const auto add = [&](std::shared_ptr<const Layer> layer, std::vector<int> inputs) {
    return AddOwnNode(std::move(layer), std::move(inputs), node.device);
  };
  const std::vector<int> own = node.inputs;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!masks_.Has(own[i])) continue;
    CAIRN_ASSIGN_OR_RETURN(node.inputs.emplace_back(), masks_.NodeOf(own[i], add));
    node.masked.push_back(static_cast<int>(i));
  }
  return absl::OkStatus();
}

absl::Status ModelBuilder::AddVariables(const ReadLayer& layer, absl::Span<const Shape> inputs, Node& node) {
  const std::vector<VariableSpec> specs = layer.layer->Variables(inputs);
  const bool shares = !node.layer->variables_of().empty();
  const std::string owner = shares ? std::string(node.layer->variables_of()) : layer.name;
  const auto [first, fresh] = first_node_of_.try_emplace(node.layer.get(), model_.nodes_.size());
  if (!fresh) {
    node.variables = model_.nodes_[first->second].variables;
    for (size_t i = 0; i < specs.size(); ++i) {
      const ModelVariable& variable = model_.variables_[static_cast<size_t>(node.variables[i])];
      if (variable.shape == specs[i].shape) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("is used on input ", inputs[0].ToString(), ", where its ", specs[i].name, " would be ",
                       specs[i].shape.ToString(), " and not ", variable.shape.ToString()));
    }
    return absl::OkStatus();
  }
  if (shares) {
    const auto called =
        absl::c_find_if(model_.nodes_, [&](const Node& other) { return other.layer->name() == owner; });
    if (called == model_.nodes_.end())
      return absl::InvalidArgumentError(
          absl::StrCat("has the variables of '", owner, "', which is not called before"));
    node.groups = called->groups;
  }
  for (const VariableSpec& spec : specs) {
    CAIRN_ASSIGN_OR_RETURN(const Shape shape, Shape::FromUntrusted(spec.shape.dims()));
    const std::string name = absl::StrCat(owner, "/", spec.name);
    const auto shared = absl::c_find_if(
        model_.variables_, [&](const ModelVariable& variable) { return shares && variable.name == name; });
    if (shared != model_.variables_.end() && shared->shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat("its ", spec.name, " would be ", shape.ToString(),
                                                     ", but that of '", owner, "' is ",
                                                     shared->shape.ToString()));
    }
    if (shared != model_.variables_.end()) {
      node.variables.push_back(static_cast<int>(shared - model_.variables_.begin()));
      continue;
    }
    if (shape.num_elements() > kMaxParameters - model_.num_parameters_) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.name, " ", shape.ToString(), " makes more than 2^32 parameters"));
    }
    node.variables.push_back(static_cast<int>(model_.variables_.size()));
    CAIRN_RETURN_IF_ERROR(Annotate(AddVariable(name, shape, spec, layer.trainable), spec.name));
  }
  return absl::OkStatus();
}

absl::Status ModelBuilder::AddVariable(const std::string& name, const Shape& shape, const VariableSpec& spec,
                                       bool trainable) {
  CAIRN_RETURN_IF_ERROR(CheckShape(spec.initializer, shape));
  CAIRN_RETURN_IF_ERROR(CheckShape(spec.regularizer, shape));
  ModelVariable variable = {.name = name,
                            .shape = shape,
                            .initializer = spec.initializer,
                            .offset = model_.num_parameters_,
                            .regularizer = trainable ? spec.regularizer : RegularizerSpec(),
                            .moving_average_momentum = trainable ? spec.moving_average_momentum : 1.0f};
  if (spec.constraint.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(Constraint constraint, Resolve(*spec.constraint, shape));
    if (trainable) variable.constraint = std::move(constraint);
  }
  model_.variables_.push_back(std::move(variable));
  model_.num_parameters_ += shape.num_elements();
  return absl::OkStatus();
}

absl::Status ModelBuilder::CheckUsed() const {
  std::vector<bool> used(model_.nodes_.size());
  for (const Node& node : model_.nodes_) {
    for (const int input : node.inputs) {
      if (input >= 0) used[static_cast<size_t>(input)] = true;
    }
  }
  for (size_t i = 0; i + 1 < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the output does not depend on layer '", model_.nodes_[i].layer->name(), "' (",
                     model_.nodes_[i].layer->class_name(), "), which a model within the model computes"));
  }
  return absl::OkStatus();
}

std::vector<int> ModelBuilder::VariablesOf(const Layer& layer) const {
  const auto first = first_node_of_.find(&layer);
  if (first == first_node_of_.end()) return {};
  return model_.nodes_[first->second].variables;
}

Model ModelBuilder::Finish(CompileConfig compile_config, std::string canonical_json) {
  for (size_t i = 0; i < model_.inputs_.size(); ++i) {
    DType& type = model_.inputs_[i].dtype;
    if (model_.inputs_[i].map != nullptr) continue;
    const IntegerUse use = IntegerUseOf(model_.nodes_, Node::OfModelInput(static_cast<int>(i)));
    // A float32 holds all values of smaller types.
    const bool is_wide = type == DType::kInt32 || type == DType::kInt64;
    if (use == IntegerUse::kNone || (use == IntegerUse::kCompared && !is_wide)) {
      type = DType::kFloat32;
    } else if (!IsInteger(type) || model_.inputs_[i].ragged) {
      type = DType::kInt64;
    }
  }
  WeighStatistics(model_.nodes_, model_.variables_);
  model_.compile_config_ = std::move(compile_config);
  model_.canonical_json_ = std::move(canonical_json);
  return std::exchange(model_, Model());
}

}  // namespace cairn::nn

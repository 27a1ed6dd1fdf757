// Functional models: a graph of calls of layers, as Keras 2 and Keras 3 write it.
//
// A tensor is identified by its layer and by the number of the layer's call that computes it: (layer, call).
// Keras 3 writes it as an object with `keras_history`, Keras 2 as [layer, call, output, kwargs]. In a file
// written by hand the layer's name suffices.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/distributed_embedding.h"
#include "nn/model_builder.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct Tensor {
  std::string layer;
  int64_t call = 0;
  friend bool operator<(const Tensor& a, const Tensor& b) {
    return std::tie(a.layer, a.call) < std::tie(b.layer, b.call);
  }
};

// Reads [layer, call, output, ...]. Layers have only one output.
std::optional<Tensor> ReadHistory(const json& value) {
  if (value.is_string()) return Tensor{value.get<std::string>()};
  if (!value.is_array() || value.size() < 3 || !value[0].is_string() || !value[1].is_number_unsigned() ||
      value[2] != 0) {
    return std::nullopt;
  }
  return Tensor{value[0].get<std::string>(), value[1].get<int64_t>()};
}

// The version of Keras that wrote a call, and the kind of layer.
enum class CallForm {
  kKeras2,
  kKeras2OfTrainingMode,  // the layer computes differently in training and in inference
  kKeras3,
};

// Accepts only arguments of a call that have no effect: nulls, and `training` with an exception. Keras 3 records it
// for every call, True for image augmentation, and fit() and predict() override it. Keras 2 records it only if the
// user set it, and fit() then respects it, so it has an effect on layers that compute differently in training.
absl::Status CheckKwargs(const json& kwargs, CallForm form) {
  if (kwargs.is_null()) return absl::OkStatus();
  if (!kwargs.is_object())
    return absl::InvalidArgumentError(absl::StrCat("kwargs: expected an object, got ", kwargs.dump()));
  for (const auto& [key, value] : kwargs.items()) {
    if (value.is_null()) continue;
    if (key == "training" && value == false && form != CallForm::kKeras2OfTrainingMode) continue;
    if (key == "training" && value == true && form == CallForm::kKeras3) continue;
    return absl::InvalidArgumentError(absl::StrCat("kwargs: ", key, ": ", value.dump(), " is not supported"));
  }
  return absl::OkStatus();
}

// Appends the tensors of one call's arguments, which may be in nested lists.
absl::Status CollectTensors(const json& value, CallForm form, std::vector<Tensor>& tensors) {
  if (value.is_object() && value.contains("config") && value["config"].is_object() &&
      value["config"].contains("keras_history")) {
    const auto tensor = ReadHistory(value["config"]["keras_history"]);
    if (!tensor.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "keras_history: ", value["config"]["keras_history"].dump(), " does not name a tensor"));
    }
    tensors.push_back(*tensor);
    return absl::OkStatus();
  }
  if (const auto tensor = ReadHistory(value); tensor.has_value()) {
    if (value.size() > 3 && value.is_array()) CAIRN_RETURN_IF_ERROR(CheckKwargs(value[3], form));
    tensors.push_back(*tensor);
    return absl::OkStatus();
  }
  if (value.is_number())
    return absl::InvalidArgumentError(
        absl::StrCat("the number ", value.dump(), " in place of a tensor is not supported"));
  // A dictionary of tensors by name, as in keras.Model(inputs={...}, outputs={...}).
  const bool dictionary = value.is_object() && !value.contains("class_name");
  if (!value.is_array() && !dictionary)
    return absl::InvalidArgumentError(absl::StrCat(value.dump(), " does not name a tensor"));
  for (const json& entry : value) CAIRN_RETURN_IF_ERROR(CollectTensors(entry, form, tensors));
  return absl::OkStatus();
}

std::string NamesOf(const std::vector<Tensor>& tensors) {
  return absl::StrJoin(tensors, ", ", [](std::string* out, const Tensor& tensor) {
    absl::StrAppend(out, "'", tensor.layer, "'");
  });
}

// The argument of a call that has the weights of the ids; empty: the layer takes none.
std::string WeightsKey(const ReadLayer& layer) {
  if (layer.layer == nullptr) return "";
  if (layer.layer->class_name() == "CategoryEncoding") return "count_weights";
  return layer.layer->row_table() != nullptr ? "weights" : "";
}

std::string TextOf(const json& object, const char* field) {
  const json value = object.is_object() ? object.value(field, json()) : json();
  return value.is_string() ? value.get<std::string>() : "";
}

// Keras 3 writes the functions that compute masks of time steps into the graph, and passes their output as `mask`. They
// are not read: ModelBuilder computes the same masks from the layers (StepMasks).
bool IsMaskFunction(const json& layer) {
  constexpr const char* kFunctions[] = {"Any",      "Concatenate", "ExpandDims", "LogicalOr",
                                        "NotEqual", "OnesLike",    "ZerosLike"};
  return IsKerasFunction(layer) && TextOf(layer, "name") != "" &&
         absl::c_linear_search(kFunctions, TextOf(layer, "class_name"));
}

// Removes the keyword argument `key` of a call in Keras 2's form, [[layer, call, output, kwargs]], and returns it.
json TakeKeyword(const std::string& key, json& call) {
  json taken;
  if (!call.is_array() || call.empty() || !call[0].is_array() || call[0].size() < 4) return taken;
  json& kwargs = call[0][3];
  if (!kwargs.is_object() || !kwargs.contains(key)) return taken;
  taken = std::move(kwargs[key]);
  kwargs.erase(key);
  return taken;
}

bool DiffersInTraining(absl::string_view class_name) {
  return class_name == "BatchNormalization" || class_name == "GaussianNoise" ||
         absl::StrContains(class_name, "Dropout") || absl::StartsWith(class_name, "Random");
}

// The arguments of a call.
struct Arguments {
  std::vector<Tensor> inputs;
  std::vector<Tensor> masks;  // the keyword argument `mask`
};

absl::StatusOr<Arguments> ReadCall(const json& call, const ReadLayer& layer) {
  const std::string weights_key = WeightsKey(layer);
  const bool training_mode = layer.layer != nullptr && DiffersInTraining(layer.layer->class_name());
  const CallForm keras2 = training_mode ? CallForm::kKeras2OfTrainingMode : CallForm::kKeras2;
  Arguments read;
  std::vector<Tensor>& tensors = read.inputs;
  if (call.is_object()) {
    json kwargs = call.value("kwargs", json()), weights;
    if (kwargs.is_object() && kwargs.contains("mask")) {
      if (!kwargs["mask"].is_null())
        CAIRN_RETURN_IF_ERROR(CollectTensors(kwargs["mask"], CallForm::kKeras3, read.masks));
      kwargs.erase("mask");
    }
    if (!weights_key.empty() && kwargs.is_object() && kwargs.contains(weights_key)) {
      weights = std::move(kwargs[weights_key]);
      kwargs.erase(weights_key);
    }
    CAIRN_RETURN_IF_ERROR(CheckKwargs(kwargs, CallForm::kKeras3));
    CAIRN_RETURN_IF_ERROR(CollectTensors(call.value("args", json::array()), CallForm::kKeras3, tensors));
    if (!weights.is_null()) CAIRN_RETURN_IF_ERROR(CollectTensors(weights, CallForm::kKeras3, tensors));
  } else {
    json of_keras2 = call, weights;
    if (!weights_key.empty()) weights = TakeKeyword(weights_key, of_keras2);
    CAIRN_RETURN_IF_ERROR(CollectTensors(of_keras2, keras2, tensors));
    if (!weights.is_null()) CAIRN_RETURN_IF_ERROR(CollectTensors(weights, keras2, tensors));
  }
  if (tensors.empty()) return absl::InvalidArgumentError("a call names no tensors");
  // A FeatureCross that is called with x0 alone crosses it with itself.
  const bool crosses = layer.layer != nullptr && layer.layer->class_name() == "FeatureCross";
  if (crosses && tensors.size() == 1) tensors.push_back(tensors[0]);
  return read;
}

// A layer of the file, and its calls.
struct Entry {
  ReadLayer layer;
  std::vector<Arguments> calls;
};

class GraphReader {
 public:
  explicit GraphReader(ModelBuilder& builder) : builder_(builder) {}

  absl::Status AddLayer(const json& document, size_t position, int64_t line) {
    if (IsMaskFunction(document)) {
      mask_functions_.emplace(TextOf(document, "name"), TextOf(document, "class_name"));
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(ReadLayer layer, builder_.Read(document, position, line));
    // Keras writes the name twice, in the config and next to the class. A file written by hand may have it
    // only next to the class.
    const json outer_name = document.value("name", json());
    if (outer_name.is_string() && outer_name != layer.name) {
      return absl::InvalidArgumentError(
          absl::StrCat(layer.where, ": name: ", outer_name.dump(), " and \"", layer.name, "\" differ"));
    }
    Entry entry = {.layer = std::move(layer), .calls = {}};
    const json calls = document.value("inbound_nodes", json::array());
    if (!calls.is_array())
      return Fault(entry, absl::StrCat("inbound_nodes: expected a list, got ", calls.dump()));
    for (const json& call : calls) {
      auto arguments = ReadCall(call, entry.layer);
      if (!arguments.ok())
        return Annotate(arguments.status(), absl::StrCat(entry.layer.where, ": inbound_nodes"));
      entry.calls.push_back(*std::move(arguments));
    }
    if (entry.layer.layer != nullptr && entry.calls.empty()) return Fault(entry, "inbound_nodes: required");
    order_.push_back(entry.layer.name);
    const std::string name = entry.layer.name;
    entries_.emplace(name, std::move(entry));
    return absl::OkStatus();
  }

  absl::Status AddInput(const Tensor& tensor) {
    const auto found = entries_.find(tensor.layer);
    if (found == entries_.end() || found->second.layer.layer != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: input_layers: '", tensor.layer, "' is not an InputLayer of the file"));
    }
    if (values_.count(tensor) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: input_layers: '", tensor.layer, "' appears twice"));
    }
    values_[tensor] = builder_.AddInput(found->second.layer, found->second.layer.input_shape);
    return absl::OkStatus();
  }

  // Adds the calls that `output` depends on, in the file's order as far as the graph allows. The output comes
  // last.
  absl::Status AddGraph(const Tensor& output) {
    CAIRN_RETURN_IF_ERROR(MarkNeeded(output));
    const std::vector<Call> calls = NeededCalls();
    CAIRN_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(calls));
    for (const size_t position : order) {
      const Call& call = calls[position];
      std::vector<int> inputs;  // in the numbering of Node::inputs
      for (const Tensor& input : call.inputs()) inputs.push_back(values_.at(input));
      CAIRN_RETURN_IF_ERROR(CheckMasks(call, inputs));
      CAIRN_ASSIGN_OR_RETURN(values_[call.tensor], builder_.AddNode(call.entry->layer, inputs));
    }
    return absl::OkStatus();
  }

  // INVALID_ARGUMENT if the output is the ids of an input, which no node computes.
  absl::Status CheckOutput(const Tensor& output) const {
    const auto value = values_.find(output);
    if (value == values_.end() || value->second >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("config: output_layers: '", output.layer, "' is not computed by the network"));
  }

 private:
  struct Call {
    const Entry* entry;
    Tensor tensor;  // the output of the call
    const std::vector<Tensor>& inputs() const { return arguments().inputs; }
    const Arguments& arguments() const { return entry->calls[static_cast<size_t>(tensor.call)]; }
  };

  // INVALID_ARGUMENT if a mask of the call is not the one that Keras computes from the layers before it.
  absl::Status CheckMasks(const Call& call, absl::Span<const int> inputs) const {
    for (const Tensor& mask : call.arguments().masks) {
      const bool known = mask_functions_.count(mask.layer) > 0 &&
                         absl::c_any_of(inputs, [&](int input) { return builder_.HasMask(input); });
      if (known) continue;
      return Fault(*call.entry,
                   absl::StrCat("inbound_nodes: mask: '", mask.layer,
                                "' is not a mask of Embedding(mask_zero=True) or Masking, and no "
                                "other mask is supported"));
    }
    return absl::OkStatus();
  }

  // The calls that are needed, in the file's order.
  std::vector<Call> NeededCalls() const {
    std::vector<Call> calls;
    for (const std::string& name : order_) {
      const Entry& entry = entries_.at(name);
      for (int64_t call = 0; call < static_cast<int64_t>(entry.calls.size()); ++call) {
        Tensor tensor = {name, call};
        if (needed_.count(tensor) > 0) calls.push_back({&entry, std::move(tensor)});
      }
    }
    return calls;
  }

  // Returns the positions of `calls` in an order in which inputs come before their users: the order in which
  // repeated passes over the file would add the calls, if each pass added every call whose inputs have been
  // added. `pass` [call] is the number of the pass that adds the call.
  static absl::StatusOr<std::vector<size_t>> OrderOf(const std::vector<Call>& calls) {
    std::map<Tensor, size_t> position_of;
    for (size_t i = 0; i < calls.size(); ++i) position_of.emplace(calls[i].tensor, i);
    std::vector<size_t> missing(calls.size());  // [call] number of inputs that are not in the order yet
    std::vector<std::vector<size_t>> users(calls.size());  // [call] the calls that read its output
    std::vector<size_t> pass(calls.size()), ready;
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const Tensor& input : calls[i].inputs()) {
        const auto found = position_of.find(input);
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
      return Fault(*calls[position].entry, "inbound_nodes: its inputs depend on a cycle in the graph");
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::pair(pass[a], a) < std::pair(pass[b], b); });
    return order;
  }

  static absl::Status Fault(const Entry& entry, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(entry.layer.where, ": ", what));
  }

  // Checks that the tensor exists.
  absl::Status Check(const Tensor& tensor, absl::string_view user) const {
    const auto found = entries_.find(tensor.layer);
    if (const auto function = mask_functions_.find(tensor.layer); function != mask_functions_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(user, ": '", tensor.layer, "' (", function->second,
                                                     ") is a function of keras.ops, and is supported only to "
                                                     "compute masks: use a layer"));
    }
    if (found == entries_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(user, ": there is no layer '", tensor.layer, "'"));
    }
    const bool input = found->second.layer.layer == nullptr;
    if (input && values_.count(tensor) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(user, ": input '", tensor.layer, "' is not among input_layers"));
    }
    if (!input && tensor.call >= static_cast<int64_t>(found->second.calls.size())) {
      return absl::InvalidArgumentError(absl::StrCat(user, ": layer '", tensor.layer, "' is called ",
                                                     found->second.calls.size(), " times, not ",
                                                     tensor.call + 1));
    }
    return absl::OkStatus();
  }

  absl::Status MarkNeeded(const Tensor& output) {
    CAIRN_RETURN_IF_ERROR(Check(output, "config: output_layers"));
    std::vector<Tensor> open = {output};
    while (!open.empty()) {
      const Tensor tensor = open.back();
      open.pop_back();
      const Entry& entry = entries_.at(tensor.layer);
      if (entry.layer.layer == nullptr || !needed_.insert(tensor).second) continue;
      for (const Tensor& input : entry.calls[static_cast<size_t>(tensor.call)].inputs) {
        CAIRN_RETURN_IF_ERROR(Check(input, absl::StrCat(entry.layer.where, ": inbound_nodes")));
        open.push_back(input);
      }
    }
    return absl::OkStatus();
  }

  ModelBuilder& builder_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> mask_functions_;  // class by name
  std::vector<std::string> order_;                     // in the file's order
  std::set<Tensor> needed_;                            // calls that the output depends on
  std::map<Tensor, int> values_;                       // in the numbering of Node::inputs
};

}  // namespace

absl::Status ReadFunctional(const json& config, absl::Span<const int64_t> lines, ModelBuilder& builder) {
  ConfigReader reader(config);
  builder.SetName(reader.String("name", "functional"), /*functional=*/true);
  reader.Refuse("trainable", true);
  CheckDtype("dtype", reader);
  json layers = reader.Raw("layers");
  if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
  std::vector<Tensor> inputs, outputs;
  for (const auto& [field, tensors] : {std::pair{"input_layers", &inputs}, {"output_layers", &outputs}}) {
    const json& value = reader.Raw(field);
    if (value.is_null()) {
      reader.Fail(field, "required, such as [[\"input_layer\",0,0]]");
    } else if (const auto status = CollectTensors(value, CallForm::kKeras3, *tensors); !status.ok()) {
      reader.Fail(field, status.message());
    }
  }
  if (outputs.size() > 1) {
    reader.Fail("output_layers",
                absl::StrCat("the model has ", outputs.size(), " outputs, ", NamesOf(outputs),
                             "; only models with one are supported: save one that ends in "
                             "one of these layers"));
  }
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");
  if (inputs.empty()) return absl::InvalidArgumentError("config: input_layers: the list is empty");
  if (outputs.empty()) return absl::InvalidArgumentError("config: output_layers: the list is empty");

  std::vector<int64_t> layer_lines(lines.begin(), lines.end());
  CAIRN_RETURN_IF_ERROR(ExpandDistributedEmbeddings(layers, outputs[0].layer, layer_lines));
  CAIRN_RETURN_IF_ERROR(builder.CollectNames(layers));
  GraphReader graph(builder);
  for (size_t position = 0; position < layers.size(); ++position) {
    CAIRN_RETURN_IF_ERROR(graph.AddLayer(layers[position], position, layer_lines[position]));
  }
  for (const Tensor& input : inputs) CAIRN_RETURN_IF_ERROR(graph.AddInput(input));
  CAIRN_RETURN_IF_ERROR(graph.AddGraph(outputs[0]));
  return graph.CheckOutput(outputs[0]);
}

}  // namespace cairn::nn

// Functional models: a graph of calls of layers, as Keras 2 and Keras 3 write it.
//
// A tensor is identified by its layer and by the number of the layer's call that computes it: (layer, call).
// Keras 3 writes it as an object with `keras_history`, Keras 2 as [layer, call, output, kwargs]. In a file
// written by hand the layer's name suffices.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/distributed_embedding.h"
#include "nn/functions/index_arguments.h"
#include "nn/functions/keras_functions.h"
#include "nn/functions/number_arguments.h"
#include "nn/hub/keras_hub.h"
#include "nn/hub/reverse_calls.h"
#include "nn/layer/dtype_policy.h"
#include "nn/layer/keras_class.h"
#include "nn/layers/attention/attention_call.h"
#include "nn/model_builder.h"
#include "nn/model_graph.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Whether `value` can be the number of a call or of an output.
bool IsIndex(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{1} << 31;
}

// Reads [layer, call, output, ...].
std::optional<Tensor> ReadHistory(const json& value) {
  if (value.is_string()) return Tensor{value.get<std::string>()};
  if (!value.is_array() || value.size() < 3 || !value[0].is_string() || !IsIndex(value[1]) ||
      !IsIndex(value[2])) {
    return std::nullopt;
  }
  return Tensor{value[0].get<std::string>(), value[1].get<int64_t>(), value[2].get<int64_t>()};
}

// The version of Keras that wrote a call, and the kind of layer.
enum class CallForm {
  kKeras2,
  kKeras2OfTrainingMode,  // the layer computes differently in training and in inference
  kKeras3,
};

// Whether there is nothing but nulls in a structure of lists and dictionaries, such as the masks of several inputs.
bool IsNull(const json& value) {
  return value.is_null() || (value.is_structured() && absl::c_all_of(value, IsNull));
}

// Accepts only arguments of a call that have no effect: nulls, and `training` with an exception. Keras 3 records it
// for every call, True for image augmentation, and fit() and predict() override it. Keras 2 records it only if the
// user set it, and fit() then respects it, so it has an effect on layers that compute differently in training.
absl::Status CheckKwargs(const json& kwargs, CallForm form) {
  if (kwargs.is_null()) return absl::OkStatus();
  if (!kwargs.is_object())
    return absl::InvalidArgumentError(absl::StrCat("kwargs: expected an object, got ", kwargs.dump()));
  for (const auto& [key, value] : kwargs.items()) {
    if (IsNull(value)) continue;
    if (key == "training" && value == false && form != CallForm::kKeras2OfTrainingMode) continue;
    if (key == "training" && value == true && form == CallForm::kKeras3) continue;
    return absl::InvalidArgumentError(absl::StrCat("kwargs: ", key, ": ", value.dump(), " is not supported"));
  }
  return absl::OkStatus();
}

// For messages: an array in a model file may have thousands of numbers.
std::string Shortened(const std::string& text) {
  constexpr size_t kMaxLength = 100;
  return text.size() <= kMaxLength ? text : text.substr(0, kMaxLength) + "...";
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
  if (value.is_object() && value.value("class_name", json()) == "__numpy__")
    return absl::InvalidArgumentError("an array in place of a tensor is not supported here");
  // A dictionary of tensors by name, as in keras.Model(inputs={...}, outputs={...}).
  const bool dictionary = value.is_object() && !value.contains("class_name");
  if (!value.is_array() && !dictionary)
    return absl::InvalidArgumentError(absl::StrCat(Shortened(value.dump()), " does not name a tensor"));
  for (const json& entry : value) CAIRN_RETURN_IF_ERROR(CollectTensors(entry, form, tensors));
  return absl::OkStatus();
}

// The keyword argument of a call that has further tensors: the weights of ids, or the initial states of a recurrent
// layer; empty: the layer takes none.
std::string TensorsKey(const ReadLayer& layer) {
  if (layer.layer == nullptr) return "";
  if (layer.layer->num_states() > 0) return "initial_state";
  if (layer.layer->class_name() == "CategoryEncoding") return "count_weights";
  return layer.layer->row_table() != nullptr ? "weights" : "";
}

std::string TextOf(const json& object, const char* field) {
  const json value = object.is_object() ? object.value(field, json()) : json();
  return value.is_string() ? value.get<std::string>() : "";
}

// Keras 3 writes the functions that compute masks of time steps into the graph, and passes their output as `mask`. They
// compute no masks here: ModelBuilder computes the same masks from the layers (StepMasks).
bool IsMaskFunction(const json& layer) {
  constexpr const char* kFunctions[] = {"Any",      "Concatenate", "ExpandDims", "LogicalOr",
                                        "NotEqual", "OnesLike",    "ZerosLike"};
  return IsKerasFunction(layer) && TextOf(layer, "name") != "" &&
         absl::c_linear_search(kFunctions, TextOf(layer, "class_name"));
}

// Arguments that are neither tensors nor numbers are left out.
MaskFunction ReadMaskFunction(const json& layer) {
  MaskFunction read = {.class_name = TextOf(layer, "class_name")};
  const json calls = layer.value("inbound_nodes", json());
  if (!calls.is_array() || calls.size() != 1 || !calls[0].is_object()) return read;
  const json args = calls[0].value("args", json());
  for (const json& argument : args.is_array() ? args : json::array()) {
    if (argument.is_number()) {
      read.number = argument.get<double>();
    } else if (!CollectTensors(argument, CallForm::kKeras3, read.inputs).ok()) {
      continue;
    }
  }
  return read;
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

// Whether a layer, or a layer of a model within the model, computes differently in training and in inference.
bool HasTrainingMode(const GraphLayer& layer) {
  if (layer.model != nullptr) return absl::c_any_of(layer.model->layers, HasTrainingMode);
  return layer.read.layer != nullptr && layer.read.layer->differs_in_training();
}

// Keras gives a dictionary of inputs to a model by the names of its InputLayers. Returns it as a list in the model's
// order; other arguments as they are.
json InModelsOrder(const json& args, const GraphLayer& layer) {
  if (layer.model == nullptr || !args.is_array() || args.size() != 1 || !args[0].is_object()) return args;
  json list = json::array();
  for (const Tensor& input : layer.model->inputs) {
    const auto found = args[0].find(input.layer);
    if (found == args[0].end()) return args;
    list.push_back(*found);
  }
  return list.size() == args[0].size() ? list : args;
}

absl::StatusOr<GraphLayer::Call> ReadCall(const json& call, const GraphLayer& entry) {
  const ReadLayer& layer = entry.read;
  const std::string further_key = TensorsKey(layer);
  const bool training_mode = HasTrainingMode(entry);
  const CallForm keras2 = training_mode ? CallForm::kKeras2OfTrainingMode : CallForm::kKeras2;
  GraphLayer::Call read;
  std::vector<Tensor>& tensors = read.inputs;
  if (call.is_object()) {
    json kwargs = call.value("kwargs", json()), further;
    if (kwargs.is_object() && kwargs.contains("mask") && layer.function == nullptr) {
      if (!IsNull(kwargs["mask"]))
        CAIRN_RETURN_IF_ERROR(CollectTensors(kwargs["mask"], CallForm::kKeras3, read.masks));
      kwargs.erase("mask");
    }
    if (!further_key.empty() && kwargs.is_object() && kwargs.contains(further_key)) {
      further = std::move(kwargs[further_key]);
      kwargs.erase(further_key);
    }
    CAIRN_RETURN_IF_ERROR(CheckKwargs(kwargs, CallForm::kKeras3));
    const json args = InModelsOrder(call.value("args", json::array()), entry);
    CAIRN_RETURN_IF_ERROR(CollectTensors(args, CallForm::kKeras3, tensors));
    if (!IsNull(further)) CAIRN_RETURN_IF_ERROR(CollectTensors(further, CallForm::kKeras3, tensors));
    // Keras 3 gives a layer that has an initial_state no mask, unless the call does. Keras 2 does.
    const bool has_states = layer.layer != nullptr && layer.layer->num_states() > 0 && tensors.size() > 1;
    read.takes_masks = !has_states || !read.masks.empty();
  } else {
    json of_keras2 = call, further;
    if (!further_key.empty()) further = TakeKeyword(further_key, of_keras2);
    CAIRN_RETURN_IF_ERROR(CollectTensors(of_keras2, keras2, tensors));
    if (!IsNull(further)) CAIRN_RETURN_IF_ERROR(CollectTensors(further, keras2, tensors));
  }
  if (tensors.empty()) return absl::InvalidArgumentError("a call names no tensors");
  // A FeatureCross that is called with x0 alone crosses it with itself.
  const bool crosses = layer.layer != nullptr && layer.layer->class_name() == "FeatureCross";
  if (crosses && tensors.size() == 1) tensors.push_back(tensors[0]);
  return read;
}

// The functional model that is read: its layers with their calls.
class FunctionalReader {
 public:
  FunctionalReader(LayerListReader& list, ModelGraph& graph) : list_(list), graph_(graph) {}

  absl::Status AddLayer(const json& as_written, size_t position) {
    if (!IsMaskFunction(as_written)) return AddComputed(as_written, position);
    const auto added =
        graph_.mask_functions.emplace(TextOf(as_written, "name"), ReadMaskFunction(as_written)).first;
    // A function that computes a mask only may have a form that is not supported otherwise.
    if (IsSupportedFunction(TextOf(as_written, "class_name")))
      added->second.fault = AddComputed(as_written, position);
    return absl::OkStatus();
  }

  // Makes what reads an output of a ReversibleEmbedding read that of the layer which has the call.
  void FindSplitCalls() {
    const auto find = [this](std::vector<Tensor>& tensors) {
      for (Tensor& tensor : tensors) {
        const auto found = split_calls_.find(tensor.layer);
        if (found == split_calls_.end() || tensor.call >= static_cast<int64_t>(found->second.size()))
          continue;
        const SplitCall& call = found->second[static_cast<size_t>(tensor.call)];
        if (call.reverse) tensor.layer = ReverseLayerOf(tensor.layer);
        tensor.call = call.number;
      }
    };
    find(graph_.outputs);
    for (GraphLayer& layer : graph_.layers) {
      for (GraphLayer::Call& call : layer.calls) find(call.inputs);
    }
  }

  // Keras counts the calls of a model within the model from 1 in some places, since the model itself is a call of its
  // layers: everywhere in Keras 2, and among the outputs in Keras 3. All calls are counted from 0 afterwards.
  void CountCallsFromZero() {
    for (const GraphLayer& layer : graph_.layers) {
      if (layer.model == nullptr) continue;
      std::vector<Tensor*> read_by_layers, outputs;
      for (GraphLayer& user : graph_.layers) {
        for (GraphLayer::Call& call : user.calls) AddReferences(layer, call.inputs, read_by_layers);
      }
      AddReferences(layer, graph_.outputs, outputs);
      const auto from_one = [](const std::vector<Tensor*>& references) {
        return absl::c_all_of(references, [](const Tensor* tensor) { return tensor->call > 0; });
      };
      // A file written by hand that counts some calls from 0 counts all of them so.
      const bool from_zero = !keras3_ && !read_by_layers.empty() && !from_one(read_by_layers);
      if (from_one(read_by_layers) && !keras3_) Shift(read_by_layers);
      const auto calls = static_cast<int64_t>(layer.calls.size());
      const bool beyond =
          absl::c_any_of(outputs, [&](const Tensor* tensor) { return tensor->call == calls; });
      const bool is_functional =
          layer.model->class_name == "Functional" || IsHubModel(layer.model->class_name);
      if (!from_zero && from_one(outputs) && (beyond || is_functional)) Shift(outputs);
    }
  }

 private:
  // Adds a layer, or a function that computes values.
  absl::Status AddComputed(const json& as_written, size_t position) {
    json document = as_written;
    for (const auto rewrite : {&NormalizeAttentionCalls, &TakeNumber, &TakeIndex, &ExpandHubLayer}) {
      if (const auto status = rewrite(document); !status.ok())
        return Annotate(status, absl::StrCat("layer '", TextOf(as_written, "name"), "'"));
    }
    std::vector<SplitCall> split;
    const json reverse = TakeReverseCalls(document, split);
    CAIRN_ASSIGN_OR_RETURN(GraphLayer layer, list_.Read(document, position));
    if (!reverse.is_null()) split_calls_[layer.read.local_name] = std::move(split);
    // Keras writes the name twice, in the config and next to the class. A file written by hand may have it
    // only next to the class.
    const json outer_name = document.value("name", json());
    if (outer_name.is_string() && outer_name != layer.read.local_name) {
      return Fault(layer,
                   absl::StrCat("name: ", outer_name.dump(), " and \"", layer.read.local_name, "\" differ"));
    }
    const json calls = document.value("inbound_nodes", json::array());
    if (!calls.is_array())
      return Fault(layer, absl::StrCat("inbound_nodes: expected a list, got ", calls.dump()));
    for (const json& call : calls) {
      keras3_ = keras3_ || call.is_object();
      auto read = ReadCall(call, layer);
      if (!read.ok()) return Annotate(read.status(), absl::StrCat(layer.read.where, ": inbound_nodes"));
      layer.calls.push_back(*std::move(read));
    }
    if (!layer.is_input() && layer.calls.empty()) return Fault(layer, "inbound_nodes: required");
    graph_.layers.push_back(std::move(layer));
    return reverse.is_null() ? absl::OkStatus() : AddLayer(reverse, position);
  }

  static absl::Status Fault(const GraphLayer& layer, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(layer.read.where, ": ", what));
  }

  static void AddReferences(const GraphLayer& layer, std::vector<Tensor>& tensors,
                            std::vector<Tensor*>& references) {
    for (Tensor& tensor : tensors) {
      if (tensor.layer == layer.read.local_name) references.push_back(&tensor);
    }
  }
  static void Shift(const std::vector<Tensor*>& references) {
    for (Tensor* tensor : references) --tensor->call;
  }

  LayerListReader& list_;
  ModelGraph& graph_;
  bool keras3_ = false;
  std::map<std::string, std::vector<SplitCall>>
      split_calls_;  // [ReversibleEmbedding with reverse calls][call]
};

}  // namespace

absl::StatusOr<ModelGraph> ReadFunctional(const json& config, std::vector<int64_t> lines,
                                          const GraphPlace& place, ModelBuilder& builder) {
  ConfigReader reader(config);
  ModelGraph graph = {.name = reader.String("name", "functional"), .class_name = "Functional"};
  if (place.scope.nested()) {
    reader.Ignore({"trainable"});
  } else {
    reader.Refuse("trainable", true);
  }
  CheckDtype("dtype", reader);
  json layers = reader.Raw("layers");
  if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
  for (const auto& [field, tensors] :
       {std::pair{"input_layers", &graph.inputs}, {"output_layers", &graph.outputs}}) {
    const json& value = reader.Raw(field);
    if (value.is_null()) {
      reader.Fail(field, "required, such as [[\"input_layer\",0,0]]");
    } else if (const auto status = CollectTensors(value, CallForm::kKeras3, *tensors); !status.ok()) {
      reader.Fail(field, status.message());
    }
  }
  const json& outputs = reader.Raw("output_layers");
  if (outputs.is_object() && !outputs.contains("class_name")) {
    for (const auto& [key, value] : outputs.items()) {
      graph.output_keys.push_back(key);
      std::vector<Tensor> of_key;
      if (CollectTensors(value, CallForm::kKeras3, of_key).ok() && of_key.size() != 1)
        reader.Fail("output_layers", absl::StrCat("'", key, "': expected one tensor, got ", of_key.size()));
    }
  }
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");
  if (graph.inputs.empty()) return absl::InvalidArgumentError("config: input_layers: the list is empty");
  if (graph.outputs.empty()) return absl::InvalidArgumentError("config: output_layers: the list is empty");

  CAIRN_RETURN_IF_ERROR(ExpandDistributedEmbeddings(layers, graph.outputs[0].layer, lines));
  CAIRN_RETURN_IF_ERROR(builder.layers().CollectNames(layers, place.scope.prefix));
  LayerListReader list(place, std::move(lines), builder);
  FunctionalReader functional(list, graph);
  for (size_t position = 0; position < layers.size(); ++position) {
    CAIRN_RETURN_IF_ERROR(functional.AddLayer(layers[position], position));
  }
  functional.FindSplitCalls();
  functional.CountCallsFromZero();
  return graph;
}

}  // namespace cairn::nn

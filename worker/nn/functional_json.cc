// Functional models: a graph of calls of layers, as Keras 2 and Keras 3 write it.
//
// A tensor is named by the layer that made it and by which of the layer's calls did: (layer, call). Keras 3
// writes it as an object with `keras_history`, Keras 2 as [layer, call, output, kwargs]; by hand the layer's
// name is enough.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/nn/model_builder.h"

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

// [layer, call, output, ...]; only layers with one output exist.
std::optional<Tensor> ReadHistory(const json& value) {
  if (value.is_string()) return Tensor{value.get<std::string>()};
  if (!value.is_array() || value.size() < 3 || !value[0].is_string() || !value[1].is_number_unsigned() ||
      value[2] != 0) {
    return std::nullopt;
  }
  return Tensor{value[0].get<std::string>(), value[1].get<int64_t>()};
}

// Arguments of a call that change nothing: nulls, and the `training` that a layer has in training anyway.
absl::Status CheckKwargs(const json& kwargs) {
  if (kwargs.is_null()) return absl::OkStatus();
  if (!kwargs.is_object()) return absl::InvalidArgumentError(absl::StrCat("kwargs: ", kwargs.dump()));
  for (const auto& [key, value] : kwargs.items()) {
    if (value.is_null() || (key == "training" && value == false)) continue;
    return absl::InvalidArgumentError(absl::StrCat("kwargs: ", key, ": ", value.dump(), " is not supported"));
  }
  return absl::OkStatus();
}

// Appends the tensors of one call's arguments, in whatever lists they are nested.
absl::Status CollectTensors(const json& value, std::vector<Tensor>& tensors) {
  if (value.is_object() && value.contains("config") && value["config"].is_object() &&
      value["config"].contains("keras_history")) {
    const auto tensor = ReadHistory(value["config"]["keras_history"]);
    if (!tensor.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("keras_history: ", value["config"]["keras_history"].dump(), " names no tensor"));
    }
    tensors.push_back(*tensor);
    return absl::OkStatus();
  }
  if (const auto tensor = ReadHistory(value); tensor.has_value()) {
    if (value.size() > 3 && value.is_array()) CAIRN_RETURN_IF_ERROR(CheckKwargs(value[3]));
    tensors.push_back(*tensor);
    return absl::OkStatus();
  }
  if (!value.is_array()) return absl::InvalidArgumentError(absl::StrCat(value.dump(), " names no tensor"));
  for (const json& entry : value) CAIRN_RETURN_IF_ERROR(CollectTensors(entry, tensors));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> ReadCall(const json& call) {
  std::vector<Tensor> tensors;
  if (call.is_object()) {
    CAIRN_RETURN_IF_ERROR(CheckKwargs(call.value("kwargs", json())));
    CAIRN_RETURN_IF_ERROR(CollectTensors(call.value("args", json::array()), tensors));
  } else {
    CAIRN_RETURN_IF_ERROR(CollectTensors(call, tensors));
  }
  if (tensors.empty()) return absl::InvalidArgumentError("a call without tensors");
  return tensors;
}

// One layer of the file and its calls.
struct Entry {
  ReadLayer layer;
  std::vector<std::vector<Tensor>> calls;
};

class GraphReader {
 public:
  explicit GraphReader(ModelBuilder& builder) : builder_(builder) {}

  absl::Status AddLayer(const json& document, size_t position, int64_t line) {
    CAIRN_ASSIGN_OR_RETURN(ReadLayer layer, builder_.Read(document, position, line));
    // Keras writes the name twice; by hand it may stand beside the class only.
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
      auto tensors = ReadCall(call);
      if (!tensors.ok())
        return Annotate(tensors.status(), absl::StrCat(entry.layer.where, ": inbound_nodes"));
      entry.calls.push_back(*std::move(tensors));
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
          absl::StrCat("config: input_layers: '", tensor.layer, "' is no InputLayer of the file"));
    }
    if (values_.count(tensor) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: input_layers: '", tensor.layer, "' appears twice"));
    }
    values_[tensor] = builder_.AddInput(tensor.layer, found->second.layer.input_shape);
    return absl::OkStatus();
  }

  // Adds what `output` is made of, in the file's order as far as the graph allows; the output comes last.
  absl::Status AddGraph(const Tensor& output) {
    CAIRN_RETURN_IF_ERROR(MarkNeeded(output));
    const Entry* blocked = nullptr;
    for (bool progress = true; progress && values_.count(output) == 0;) {
      progress = false;
      for (const std::string& name : order_) {
        const Entry& entry = entries_.at(name);
        for (int64_t call = 0; call < static_cast<int64_t>(entry.calls.size()); ++call) {
          const Tensor tensor = {name, call};
          if (needed_.count(tensor) == 0 || values_.count(tensor) > 0) continue;
          const auto inputs = KnownInputs(entry.calls[static_cast<size_t>(call)]);
          if (!inputs.has_value()) {
            blocked = &entry;
            continue;
          }
          CAIRN_ASSIGN_OR_RETURN(values_[tensor], builder_.AddNode(entry.layer, *inputs));
          progress = true;
        }
      }
    }
    if (values_.count(output) > 0) return absl::OkStatus();
    return Fault(*blocked, "inbound_nodes: what it needs depends on a cycle in the graph");
  }

 private:
  static absl::Status Fault(const Entry& entry, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(entry.layer.where, ": ", what));
  }

  // That there is such a tensor.
  absl::Status Check(const Tensor& tensor, absl::string_view user) const {
    const auto found = entries_.find(tensor.layer);
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
      for (const Tensor& input : entry.calls[static_cast<size_t>(tensor.call)]) {
        CAIRN_RETURN_IF_ERROR(Check(input, absl::StrCat(entry.layer.where, ": inbound_nodes")));
        open.push_back(input);
      }
    }
    return absl::OkStatus();
  }

  // What Node::inputs calls these, once all of them are there.
  std::optional<std::vector<int>> KnownInputs(const std::vector<Tensor>& tensors) const {
    std::vector<int> inputs;
    for (const Tensor& tensor : tensors) {
      const auto found = values_.find(tensor);
      if (found == values_.end()) return std::nullopt;
      inputs.push_back(found->second);
    }
    return inputs;
  }

  ModelBuilder& builder_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> order_;  // of the file
  std::set<Tensor> needed_;         // calls that the output is made of
  std::map<Tensor, int> values_;    // as Node::inputs names them
};

}  // namespace

absl::Status ReadFunctional(const json& config, absl::Span<const int64_t> lines, ModelBuilder& builder) {
  ConfigReader reader(config);
  builder.SetName(reader.String("name", "functional"), /*functional=*/true);
  reader.Refuse("trainable", true);
  CheckDtype("dtype", reader);
  const json& layers = reader.Raw("layers");
  if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
  std::vector<Tensor> inputs, outputs;
  for (const auto& [field, tensors] : {std::pair{"input_layers", &inputs}, {"output_layers", &outputs}}) {
    const json& value = reader.Raw(field);
    if (value.is_null()) {
      reader.Fail(field, "required, such as [[\"input_layer\",0,0]]");
    } else if (const auto status = CollectTensors(value, *tensors); !status.ok()) {
      reader.Fail(field, status.message());
    }
  }
  if (outputs.size() > 1) reader.Fail("output_layers", "several outputs are not supported, only one");
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");
  if (inputs.empty()) return absl::InvalidArgumentError("config: input_layers: there is none");
  if (outputs.empty()) return absl::InvalidArgumentError("config: output_layers: there is none");

  CAIRN_RETURN_IF_ERROR(builder.CollectNames(layers));
  GraphReader graph(builder);
  for (size_t position = 0; position < layers.size(); ++position) {
    CAIRN_RETURN_IF_ERROR(
        graph.AddLayer(layers[position], position, position < lines.size() ? lines[position] : 0));
  }
  for (const Tensor& input : inputs) CAIRN_RETURN_IF_ERROR(graph.AddInput(input));
  return graph.AddGraph(outputs[0]);
}

}  // namespace cairn::nn

#include "nn/distributed_embedding.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// An output of a call of a layer, as in keras_history.
using Output = std::pair<std::string, std::pair<uint64_t, uint64_t>>;
using Outputs = std::map<Output, Output>;

// Appends the leaves of a structure of lists and dictionaries. Keras counts outputs in this order: dictionaries by
// their sorted keys, as in `json`.
template <typename IsLeaf>
void Flatten(const json& structure, const IsLeaf& is_leaf, std::vector<json>& leaves) {
  if (is_leaf(structure)) {
    leaves.push_back(structure);
  } else if (structure.is_structured()) {
    for (const json& entry : structure) Flatten(entry, is_leaf, leaves);
  }
}

bool IsTensor(const json& value) {
  return value.is_object() && value.contains("config") && value["config"].is_object() &&
         value["config"].contains("keras_history");
}

bool IsFeature(const json& value) {
  return value.is_object() && value.contains("table") && value["table"].is_number_unsigned();
}

// One DistributedEmbedding.
class Expansion {
 public:
  explicit Expansion(const json& layer) : layer_(layer), config_(layer.value("config", json())) {}

  // Appends the layers of the tables, and to `outputs` what the outputs of the layer are now.
  absl::Status Run(json& layers, Outputs& outputs) {
    CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(layer_));
    CAIRN_RETURN_IF_ERROR(ReadConfig());
    for (const json& table : tables_) CAIRN_RETURN_IF_ERROR(AddTable(table));
    const json calls = layer_.value("inbound_nodes", json::array());
    if (!calls.is_array() || calls.empty()) {
      return absl::InvalidArgumentError("inbound_nodes: expected a list of the layer's calls, at least one");
    }
    uint64_t number = 0;
    for (const json& call : calls) CAIRN_RETURN_IF_ERROR(AddCall(call, number++, outputs));
    for (json& made : made_) {
      if (!made["inbound_nodes"].empty()) layers.push_back(std::move(made));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadConfig() {
    ConfigReader reader(config_);
    name_ = reader.String("name", "");
    if (name_.empty()) reader.Fail("name", "required");
    reader.Ignore({"trainable", "dtype"});  // each table's layer reads them
    const json& tables = reader.Raw("tables");
    if (!tables.is_array() || tables.empty()) reader.Fail("tables", "required, a list of tables");
    tables_ = tables;
    Flatten(reader.Raw("feature_configs"), IsFeature, features_);
    if (features_.empty())
      reader.Fail("feature_configs", "required, features with the number of their table");
    for (const json& feature : features_) {
      if (feature["table"].get<size_t>() >= tables.size()) {
        reader.Fail("feature_configs",
                    absl::StrCat("feature ", feature.value("name", json()).dump(), " has table ",
                                 feature["table"].dump(), ", and there are ", tables.size()));
      }
    }
    return reader.Finish();
  }

  absl::Status AddTable(const json& table) {
    ConfigReader reader(table);
    const std::string name = reader.String("name", "");
    if (name.empty()) reader.Fail("name", "required");
    // Where keras_rs stores the table, and the limits of its hardware.
    reader.Ignore({"placement", "max_ids_per_partition", "max_unique_ids_per_partition"});
    json config = {{"name", absl::StrCat(name_, "/", name)},
                   {"trainable", config_.value("trainable", json(true))},
                   {"dtype", config_.value("dtype", json())},
                   {"input_dim", reader.PositiveInt("vocabulary_size")},
                   {"output_dim", reader.PositiveInt("embedding_dim")},
                   {"embeddings_initializer", reader.Raw("initializer")},
                   {"optimizer", reader.Raw("optimizer")},
                   {"combiner", reader.String("combiner", "mean")}};
    made_.push_back(
        {{"class_name", "EmbedReduce"}, {"name", config["name"]}, {"inbound_nodes", json::array()}});
    made_.back()["config"] = std::move(config);
    return Annotate(reader.Finish(), absl::StrCat("table '", name, "'"));
  }

  absl::Status AddCall(const json& call, uint64_t number, Outputs& outputs) {
    const json args = call.is_object() ? call.value("args", json::array()) : json();
    if (!args.is_array() || args.empty() || args.size() > 2)
      return absl::InvalidArgumentError("inbound_nodes: a call has features, and may have weights");
    const json kwargs = call.value("kwargs", json::object());
    std::vector<json> ids, weights;
    Flatten(args[0], IsTensor, ids);
    if (args.size() == 2) Flatten(args[1], IsTensor, weights);
    if (kwargs.is_object() && kwargs.contains("weights")) Flatten(kwargs["weights"], IsTensor, weights);
    if (ids.size() != features_.size() || (!weights.empty() && weights.size() != ids.size())) {
      return absl::InvalidArgumentError(absl::StrCat("inbound_nodes: ", ids.size(), " inputs and ",
                                                     weights.size(), " weights for ", features_.size(),
                                                     " features"));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      json& table = made_[features_[i]["table"].get<size_t>()];
      json made = {{"args", {ids[i]}}, {"kwargs", json::object()}};
      if (!weights.empty()) made["kwargs"]["weights"] = weights[i];
      outputs[{name_, {number, i}}] = {table["name"].get<std::string>(), {table["inbound_nodes"].size(), 0}};
      table["inbound_nodes"].push_back(std::move(made));
    }
    return absl::OkStatus();
  }

  const json& layer_;
  const json config_;
  std::string name_;
  json tables_;
  std::vector<json> features_;  // in the order of the outputs
  std::vector<json> made_;      // [table] its layer
};

// The name in the configuration, which other layers refer to; empty if there is none.
std::string NameOf(const json& layer) {
  const json config = layer.is_object() ? layer.value("config", json()) : json();
  const json name = config.is_object() ? config.value("name", json()) : json();
  return name.is_string() ? name.get<std::string>() : "";
}

void Rename(json& value, const Outputs& outputs) {
  if (IsTensor(value)) {
    json& history = value["config"]["keras_history"];
    if (!history.is_array() || history.size() != 3 || !history[0].is_string() ||
        !history[1].is_number_unsigned() || !history[2].is_number_unsigned()) {
      return;  // refused where the call is read
    }
    const auto found = outputs.find(
        {history[0].get<std::string>(), {history[1].get<uint64_t>(), history[2].get<uint64_t>()}});
    if (found != outputs.end())
      history = {found->second.first, found->second.second.first, found->second.second.second};
  } else if (value.is_structured()) {
    for (json& entry : value) Rename(entry, outputs);
  }
}

}  // namespace

absl::Status ExpandDistributedEmbeddings(json& layers, absl::string_view output,
                                         std::vector<int64_t>& lines) {
  json expanded = json::array();
  std::vector<int64_t> new_lines;
  Outputs outputs;
  lines.resize(layers.size());
  std::map<std::string, int> names;  // how many layers have a name
  for (const json& layer : layers) ++names[NameOf(layer)];
  for (size_t i = 0; i < layers.size(); ++i) {
    const json& layer = layers[i];
    if (layer.is_object() && layer.value("class_name", json()) == "DistributedEmbedding") {
      const std::string where =
          absl::StrCat("layer ", layer.value("name", json(i)).dump(), " (DistributedEmbedding)");
      if (names[NameOf(layer)] > 1)
        return absl::InvalidArgumentError(absl::StrCat(where, ": two layers are named so"));
      if (NameOf(layer) == output) {
        return absl::InvalidArgumentError(absl::StrCat("config: output_layers: '", output,
                                                       "' (DistributedEmbedding) makes the model's output, "
                                                       "and a model needs a layer behind its tables"));
      }
      CAIRN_RETURN_IF_ERROR(Annotate(Expansion(layer).Run(expanded, outputs), where));
    } else {
      expanded.push_back(layer);
    }
    new_lines.resize(expanded.size(), lines[i]);
  }
  if (outputs.empty()) return absl::OkStatus();
  for (json& layer : expanded) {
    if (layer.is_object() && layer.contains("inbound_nodes")) Rename(layer["inbound_nodes"], outputs);
  }
  layers = std::move(expanded);
  lines = std::move(new_lines);
  return absl::OkStatus();
}

}  // namespace cairn::nn

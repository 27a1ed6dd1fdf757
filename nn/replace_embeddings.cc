#include "nn/replace_embeddings.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/layers/layer_registry.h"

namespace cairn::nn {
namespace {

bool IsEmbedding(const Node& node) {
  return node.layer->class_name() == "Embedding" || node.layer->row_table() != nullptr;
}

}  // namespace

class EmbeddingReplacer {
 public:
  explicit EmbeddingReplacer(const Model& model)
      : from_(model),
        users_(model.nodes().size()),
        lookup_of_(model.nodes().size()),
        is_needed_(model.nodes().size()),
        was_read_(model.inputs().size()),
        is_read_(model.inputs().size()) {
    for (size_t i = 0; i < model.nodes().size(); ++i) {
      for (const int input : model.nodes()[i].inputs) {
        if (input < 0) {
          was_read_[IndexOf(input)] = true;
        } else {
          users_[static_cast<size_t>(input)].push_back(i);
        }
      }
    }
  }

  absl::StatusOr<ModelWithoutTables> Replace(absl::Span<const std::string> layers) {
    const std::set<std::string> replaced(layers.begin(), layers.end());
    for (const std::string& layer : replaced) CAIRN_RETURN_IF_ERROR(CheckIsEmbedding(from_, layer));
    for (size_t i = 0; i < from_.nodes().size(); ++i) {
      const Node& node = from_.nodes()[i];
      // The penalty of an activity_regularizer is a node with the name of the layer.
      if (node.variables.empty() || replaced.count(node.layer->name()) == 0) continue;
      if (const absl::Status status = AddLookup(i); !status.ok()) {
        return Annotate(status,
                        absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(), ")"));
      }
    }
    MarkNeeded();
    ModelWithoutTables made = {.model = Model(), .kept_inputs = {}, .lookups = {}};
    Build(made);
    return made;
  }

 private:
  static size_t IndexOf(int model_input) { return static_cast<size_t>(Node::OfModelInput(model_input)); }

  // Follows the ids of an Embedding through layers that only reshape them. Returns an input of the model.
  absl::StatusOr<int> IdsOf(const Node& embedding) const {
    int value = embedding.inputs[0];
    while (value >= 0) {
      const Node& node = from_.nodes()[static_cast<size_t>(value)];
      if (!OnlyReshapes(node.layer->class_name())) {
        return absl::InvalidArgumentError(
            absl::StrCat("reads the output of layer '", node.layer->name(), "' (", node.layer->class_name(),
                         "), but the ids of a table on the servers must be an input of the model"));
      }
      value = node.inputs[0];
    }
    return Node::OfModelInput(value);
  }

  // The input of the model with the weights of the ids.
  absl::StatusOr<int> WeightsOf(const Node& node, const ModelInput& ids) const {
    if (node.inputs[1] >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("its weights are the output of layer '",
                       from_.nodes()[static_cast<size_t>(node.inputs[1])].layer->name(),
                       "', but must be an input of the model"));
    }
    const int input = Node::OfModelInput(node.inputs[1]);
    const ModelInput& weights = from_.inputs()[static_cast<size_t>(input)];
    if (weights.dtype != DType::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat("the weights '", weights.name, "' of the ids '",
                                                     ids.name,
                                                     "' are looked up as ids, but must be float32"));
    }
    return input;
  }

  // Notes that an input replaces this node, and the means of its rows if the ids are ragged.
  absl::Status AddLookup(size_t index) {
    const Node& node = from_.nodes()[index];
    const ModelVariable& table = from_.variables()[static_cast<size_t>(node.variables[0])];
    CAIRN_ASSIGN_OR_RETURN(const int ids, IdsOf(node));
    if (table.regularizer.any()) {
      return absl::InvalidArgumentError(
          "embeddings_regularizer is not supported for a table outside the model");
    }
    if (table.constraint.has_value()) {
      return absl::InvalidArgumentError(
          "embeddings_constraint is not supported for a table outside the model");
    }
    if (!table.trainable()) {
      return absl::InvalidArgumentError(
          "trainable is false, which is not supported for a table outside the model");
    }
    if (index + 1 == from_.nodes().size()) {
      return absl::InvalidArgumentError(
          "makes the model's output, and a model needs a layer behind a table outside the model");
    }
    const ModelInput& of_ids = from_.inputs()[static_cast<size_t>(ids)];
    TableLookup lookup = {.layer = node.layer->name(),
                          .ids = ids,
                          .ids_name = of_ids.name,
                          .rows = table.shape[0],
                          .width = table.shape[1],
                          .initializer = table.initializer,
                          .ids_per_example = of_ids.ragged ? 0 : of_ids.shape.num_elements(),
                          .table = node.layer->row_table()};
    if (of_ids.ragged) lookup.combiner = "mean";
    if (lookup.table != nullptr) lookup.combiner = lookup.table->combiner;
    if (node.inputs.size() == 2) {
      CAIRN_ASSIGN_OR_RETURN(lookup.weights, WeightsOf(node, of_ids));
    }
    const int call = calls_[lookup.layer]++;
    ModelInput input = {.name = call == 0 ? lookup.layer : absl::StrCat(lookup.layer, ":", call),
                        .shape = node.output_shape,
                        .needs_gradient = true};
    lookup_of_[index] = lookups_.size();
    if (lookup.table == nullptr && of_ids.ragged && MeansCanBeReplaced(index, {lookup.width})) {
      input.shape = {lookup.width};
      for (const size_t mean : users_[index]) lookup_of_[mean] = lookups_.size();
    }
    inputs_.push_back(std::move(input));
    lookups_.push_back(std::move(lookup));
    return absl::OkStatus();
  }

  // Whether all users of a ragged Embedding, which are GlobalAveragePooling1D, have this output, and none is the
  // output of the model. The input of the mean is the mean already, as one step, so other users may stay.
  bool MeansCanBeReplaced(size_t embedding, const Shape& shape) const {
    return absl::c_all_of(users_[embedding], [&](size_t mean) {
      return mean + 1 < from_.nodes().size() && from_.nodes()[mean].output_shape == shape;
    });
  }

  // Marks the nodes and inputs on which the output still depends.
  void MarkNeeded() {
    is_needed_.back() = true;
    for (size_t i = from_.nodes().size(); i-- > 0;) {
      if (!is_needed_[i] || lookup_of_[i].has_value()) continue;
      for (const int input : from_.nodes()[i].inputs) {
        if (input < 0) {
          is_read_[IndexOf(input)] = true;
        } else {
          is_needed_[static_cast<size_t>(input)] = true;
        }
      }
    }
  }

  bool IsKept(size_t node) const { return is_needed_[node] && !lookup_of_[node].has_value(); }

  void Build(ModelWithoutTables& made) {
    Model& to = made.model;
    to.name_ = from_.name_;
    to.outputs_ = from_.outputs_;
    to.joining_nodes_ = from_.joining_nodes_;
    to.functional_ = from_.functional_;
    to.compile_config_ = from_.compile_config_;
    to.canonical_json_ = from_.canonical_json_;
    AddInputs(made);
    AddVariables(to);
    AddNodes(to);
    made.lookups = std::move(lookups_);
  }

  void AddInputs(ModelWithoutTables& made) {
    std::vector<ModelInput>& to = made.model.inputs_;
    for (size_t i = 0; i < from_.inputs().size(); ++i) {
      if (was_read_[i] && !is_read_[i]) continue;
      new_input_[static_cast<int>(i)] = static_cast<int>(to.size());
      made.kept_inputs.push_back(static_cast<int>(i));
      to.push_back(from_.inputs()[i]);
    }
    for (size_t i = 0; i < lookups_.size(); ++i) {
      lookups_[i].input = static_cast<int>(to.size());
      to.push_back(std::move(inputs_[i]));
    }
  }

  void AddVariables(Model& to) {
    std::set<int> kept;
    for (size_t i = 0; i < from_.nodes().size(); ++i) {
      if (IsKept(i)) kept.insert(from_.nodes()[i].variables.begin(), from_.nodes()[i].variables.end());
    }
    for (const int index : kept) {
      new_variable_[index] = static_cast<int>(to.variables_.size());
      to.variables_.push_back(from_.variables()[static_cast<size_t>(index)]);
      to.variables_.back().offset = to.num_parameters_;
      to.num_parameters_ += to.variables_.back().shape.num_elements();
    }
  }

  void AddNodes(Model& to) {
    std::vector<int> new_node(from_.nodes().size());  // set for nodes that are kept
    const auto value_of = [&](int value) {
      if (value < 0) return Node::OfModelInput(new_input_.at(Node::OfModelInput(value)));
      const std::optional<size_t>& lookup = lookup_of_[static_cast<size_t>(value)];
      if (lookup.has_value()) return Node::OfModelInput(lookups_[*lookup].input);
      return new_node[static_cast<size_t>(value)];
    };
    for (size_t i = 0; i < from_.nodes().size(); ++i) {
      if (!IsKept(i)) continue;
      new_node[i] = static_cast<int>(to.nodes_.size());
      Node& node = to.nodes_.emplace_back(from_.nodes()[i]);
      for (int& input : node.inputs) input = value_of(input);
      for (int& variable : node.variables) variable = new_variable_.at(variable);
    }
  }

  const Model& from_;
  std::vector<std::vector<size_t>> users_;        // [node]
  std::vector<std::optional<size_t>> lookup_of_;  // [node] the lookup whose input replaces the node
  std::vector<TableLookup> lookups_;
  std::vector<ModelInput> inputs_;               // [lookup]
  std::map<std::string, int> calls_;             // [layer] the number of its lookups
  std::vector<bool> is_needed_;                  // [node]
  std::vector<bool> was_read_, is_read_;         // [input of the original model]
  std::map<int, int> new_input_, new_variable_;  // from the index in the original model
};

std::vector<std::string> LayersOfRowTables(const Model& model) {
  std::vector<std::string> names;
  for (const Node& node : model.nodes()) {
    const std::string& name = node.layer->name();
    if (node.layer->row_table() != nullptr && !absl::c_linear_search(names, name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> EmbeddingLayers(const Model& model) {
  std::vector<std::string> names;
  for (const Node& node : model.nodes()) {
    const std::string& name = node.layer->name();
    if (IsEmbedding(node) && !absl::c_linear_search(names, name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> EmbeddingLayersAbove(const Model& model, int64_t rows) {
  std::vector<std::string> names;
  for (const Node& node : model.nodes()) {
    const std::string& name = node.layer->name();
    if (!IsEmbedding(node) || absl::c_linear_search(names, name)) continue;
    if (model.variables()[static_cast<size_t>(node.variables[0])].shape[0] > rows) names.push_back(name);
  }
  return names;
}

absl::Status CheckIsEmbedding(const Model& model, const std::string& layer) {
  const auto found =
      absl::c_find_if(model.nodes(), [&](const Node& node) { return node.layer->name() == layer; });
  if (found != model.nodes().end() && IsEmbedding(*found)) return absl::OkStatus();
  const std::vector<std::string> tables = EmbeddingLayers(model);
  return absl::InvalidArgumentError(absl::StrCat(
      found == model.nodes().end()
          ? absl::StrCat("the model has no layer '", layer, "'")
          : absl::StrCat("layer '", layer, "' (", found->layer->class_name(), ") has no embedding table"),
      "; Embedding layers: ", tables.empty() ? "none" : absl::StrJoin(tables, ", ")));
}

absl::StatusOr<ModelWithoutTables> ReplaceEmbeddings(const Model& model,
                                                     absl::Span<const std::string> layers) {
  return EmbeddingReplacer(model).Replace(layers);
}

}  // namespace cairn::nn

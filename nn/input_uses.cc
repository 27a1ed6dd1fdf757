#include "nn/input_uses.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/layer_registry.h"

namespace cairn::nn {
namespace {

bool IsRagged(const Model& model, int value) {
  return value < 0 && model.inputs()[static_cast<size_t>(Node::OfModelInput(value))].ragged;
}

absl::Status CheckTextInputs(const Model& model) {
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const ModelInput& input = model.inputs()[i];
    if (!input.text || input.map != nullptr) continue;
    const auto reader = absl::c_find_if(model.nodes(), [i](const Node& node) {
      return absl::c_linear_search(node.inputs, Node::OfModelInput(static_cast<int>(i)));
    });
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is of strings, and ",
                     reader == model.nodes().end() ? "no layer reads it"
                                                   : absl::StrCat("layer '", reader->layer->name(), "' (",
                                                                  reader->layer->class_name(), ") reads it"),
                     ": only StringLookup, Hashing and TextVectorization can take strings"));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT if only the ids or only the weights of `node` are ragged.
absl::Status CheckRaggedPair(const Model& model, const Node& node) {
  if (node.inputs.size() < 2 || IsRagged(model, node.inputs[0]) == IsRagged(model, node.inputs[1]))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer '", node.layer->name(), "' (", node.layer->class_name(), "): only its ",
                   IsRagged(model, node.inputs[0]) ? "ids" : "weights",
                   " are ragged: ids and weights must both be ragged, or neither"));
}

absl::Status CheckRagged(const Model& model) {
  const auto users_of = [&model](int source) {
    std::vector<int> users;
    for (size_t i = 0; i < model.nodes().size(); ++i) {
      if (absl::c_linear_search(model.nodes()[i].inputs, source)) users.push_back(static_cast<int>(i));
    }
    return users;
  };
  const auto class_of = [&model](int node) -> const std::string& {
    return model.nodes()[static_cast<size_t>(node)].layer->class_name();
  };
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    if (!model.inputs()[i].ragged) continue;
    const std::vector<int> readers = users_of(Node::OfModelInput(static_cast<int>(i)));
    if (readers.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", model.inputs()[i].name, "' is ragged, and no layer reads it"));
    }
    for (const int reader : readers) {
      const std::vector<int> means = users_of(reader);
      if (model.nodes()[static_cast<size_t>(reader)].layer->row_table() != nullptr) {
        CAIRN_RETURN_IF_ERROR(CheckRaggedPair(model, model.nodes()[static_cast<size_t>(reader)]));
        continue;
      }
      const Layer& layer = *model.nodes()[static_cast<size_t>(reader)].layer;
      if (ComputesIds(layer.class_name()) && model.nodes()[static_cast<size_t>(reader)].inputs.size() == 1)
        continue;
      const bool fits =
          class_of(reader) == "Embedding" && !means.empty() &&
          absl::c_all_of(means, [&](int mean) { return class_of(mean) == "GlobalAveragePooling1D"; });
      if (fits) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", model.inputs()[i].name, "' is ragged, and layer '",
          model.nodes()[static_cast<size_t>(reader)].layer->name(), "' (", class_of(reader),
          ") reads it: only an Embedding that is followed by GlobalAveragePooling1D can, or a layer that "
          "counts ids without count_weights"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInputUses(const Model& model) {
  CAIRN_RETURN_IF_ERROR(CheckTextInputs(model));
  return CheckRagged(model);
}

}  // namespace cairn::nn

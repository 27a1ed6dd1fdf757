// Makes a Model, layer by layer, from the JSON of its layers. model_graph.h reads the connections between them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "nn/layer_reader.h"
#include "nn/model.h"
#include "nn/step_masks.h"

namespace cairn::nn {

// A value in the numbering of Node::inputs.
struct NamedValue {
  std::string name;
  int value = 0;
};

class ModelBuilder {
 public:
  // Reads the entries of the file's `layers`, and knows their names.
  LayerReader& layers() { return layers_; }

  // Returns the input's index for Node::inputs.
  int AddInput(const ReadLayer& layer, const Shape& shape);
  // Adds a call of `layer` on the values of `inputs`, and returns the node's index. If the layer was called
  // before, its variables are shared: INVALID_ARGUMENT if its inputs have other shapes now. `takes_masks`: whether a
  // layer that takes masks of its inputs gets them in this call. It passes them on anyway.
  absl::StatusOr<int> AddNode(const ReadLayer& layer, const std::vector<int>& inputs,
                              bool takes_masks = true);

  // Adds the layers of output `output` of a call of `function`, and returns the last node's index. INVALID_ARGUMENT if
  // none compute it.
  absl::StatusOr<int> AddFunction(const ReadLayer& function, const std::vector<int>& inputs, int64_t output);

  // Adds a node that selects an output of `node`, whose layer has several. Returns its index.
  absl::StatusOr<int> AddOutputOf(int node, int output);

  // INVALID_ARGUMENT if there are too many calls of layers, or of models within the model.
  absl::Status CountCall();

  // Sets the outputs, after all nodes have been added. If there is one, it is that of the last node. INVALID_ARGUMENT
  // if an output is an input, or has a mask and other axes than time steps and features.
  absl::Status AddOutputs(absl::Span<const NamedValue> outputs);

  // Orders the inputs, after all nodes have been added. INVALID_ARGUMENT if a ragged input or one of strings has a use
  // that is not supported.
  absl::Status FinishInputs();
  // INVALID_ARGUMENT unless every node but the last has a user.
  absl::Status CheckUsed() const;

  const Shape& ShapeOf(int value) const;
  // Whether time steps of the value are masked.
  bool HasMask(int value) const { return masks_.Has(value); }
  // The number of nodes so far; the next node has this index.
  int num_nodes() const { return static_cast<int>(model_.nodes_.size()); }
  bool IsRagged(int value) const {
    return value < 0 && model_.inputs_[static_cast<size_t>(Node::OfModelInput(value))].ragged;
  }
  // The variables of a layer that has been called.
  std::vector<int> VariablesOf(const Layer& layer) const;
  void SetName(std::string name, bool functional) {
    model_.name_ = std::move(name);
    model_.functional_ = functional;
  }
  void AddRow(SummaryRow row) { model_.rows_.push_back(std::move(row)); }
  // Returns the finished model. The builder is empty afterwards.
  Model Finish(CompileConfig compile_config, std::string canonical_json);

 private:
  // The input of the model that has the ids of `layer` for the values of input `value`.
  absl::StatusOr<int> AddMappedInput(const ReadLayer& layer, int value);
  // Adds a node of `layer`, which is not only a map.
  absl::StatusOr<int> AddLayerNode(const ReadLayer& layer, const std::vector<int>& inputs, bool takes_masks);
  // Adds a node of a layer without variables that the file does not have.
  absl::StatusOr<int> AddOwnNode(std::shared_ptr<const Layer> layer, std::vector<int> inputs,
                                 const std::string& device);
  // Adds the nodes of the masks that `node` takes, and makes them its inputs.
  absl::Status TakeMasks(Node& node);
  // Adds the node of `layer.activity` behind the node `of`, and returns its index.
  absl::StatusOr<int> AddActivityNode(const ReadLayer& layer, int of);
  absl::Status CheckOutput(const NamedValue& output) const;
  absl::Status AddVariables(const ReadLayer& layer, absl::Span<const Shape> inputs, Node& node);
  absl::Status AddVariable(const std::string& name, const Shape& shape, const VariableSpec& spec,
                           bool trainable);

  Model model_;
  StepMasks masks_;
  int calls_ = 0;
  LayerReader layers_;
  std::map<const Layer*, size_t> first_node_of_;  // contains the layers that have been called
  // [input] The input whose values its map takes; -1 for an InputLayer's own.
  std::vector<int> mapped_from_;
};

}  // namespace cairn::nn

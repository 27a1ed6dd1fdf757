// Makes a Model, layer by layer, from the JSON of its layers. The caller reads the connections between them:
// model_json.cc for chains, functional_json.cc for graphs.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "nn/layer/config_reader.h"
#include "nn/model.h"
#include "nn/step_masks.h"

namespace cairn::nn {

// An entry of a file's `layers`: read, but not connected.
struct ReadLayer {
  std::string where;  // "layer 'conv2d' (Conv2D), line 17", for messages
  std::string name;
  bool trainable = true;
  std::shared_ptr<const Layer> layer;  // null for an InputLayer
  Shape input_shape;                   // an InputLayer's shape, or the input shape that a first layer gives
  bool has_input_shape = false;
  DType input_type = DType::kFloat32;  // the dtype of an InputLayer
  bool ragged = false;                 // of an InputLayer
  bool text = false;                   // the dtype of an InputLayer is string
  // Set for a merging function such as `a + b`. The function aligns shapes from their last axis, including
  // the batch, whereas a merge layer inserts missing axes after the batch. Only shapes of equal rank give the
  // same result both ways, so other shapes are refused.
  bool equal_ranks = false;
  // "device" next to class_name or in the config, an extension of Keras' format; empty: none.
  std::string device{};
};

class ModelBuilder {
 public:
  // Collects the names in the file, so that automatic names avoid them. INVALID_ARGUMENT if a name occurs
  // twice.
  absl::Status CollectNames(const nlohmann::json& layers);

  // `position` in the file identifies a layer without a name. `line` 0: unknown.
  absl::StatusOr<ReadLayer> Read(const nlohmann::json& layer, size_t position, int64_t line);

  // Returns the input's index for Node::inputs.
  int AddInput(const ReadLayer& layer, const Shape& shape);
  // Adds a call of `layer` on the values of `inputs`, and returns the node's index. If the layer was called
  // before, its variables are shared: INVALID_ARGUMENT if its inputs have other shapes now.
  absl::StatusOr<int> AddNode(const ReadLayer& layer, const std::vector<int>& inputs);

  // Orders the inputs, after all nodes have been added. INVALID_ARGUMENT if a ragged input or one of strings has a use
  // that is not supported.
  absl::Status FinishInputs();

  const Shape& ShapeOf(int value) const;
  // Whether time steps of the value are masked.
  bool HasMask(int value) const { return masks_.Has(value); }
  bool empty() const { return model_.nodes_.empty(); }
  void SetName(std::string name, bool functional) {
    model_.name_ = std::move(name);
    model_.functional_ = functional;
  }
  // Returns the finished model. The builder is empty afterwards.
  Model Finish(CompileConfig compile_config, std::string canonical_json);

 private:
  std::string UniqueName(absl::string_view class_name);
  // The input of the model that has the ids of `layer` for the values of input `value`.
  absl::StatusOr<int> AddMappedInput(const ReadLayer& layer, int value);
  // Adds a node of `layer`, which is not only a map.
  absl::StatusOr<int> AddLayerNode(const ReadLayer& layer, const std::vector<int>& inputs);
  // Adds the nodes of the masks that `node` takes, and makes them its inputs.
  absl::Status TakeMasks(Node& node);
  bool IsRagged(int value) const;
  // INVALID_ARGUMENT if the output has a mask, which the loss would have to read.
  absl::Status CheckOutputMask() const;
  absl::Status CheckTextInputs() const;
  absl::Status CheckRagged() const;
  absl::Status CheckRaggedPair(const Node& node) const;
  absl::Status AddVariables(const ReadLayer& layer, absl::Span<const Shape> inputs, Node& node);

  Model model_;
  StepMasks masks_;
  std::set<std::string> names_;
  // [name without suffix] The last suffix that an automatic name got.
  std::map<std::string, int> suffixes_;
  std::map<const Layer*, size_t> first_node_of_;  // contains the layers that have been called
  // [input] The input whose values its map takes; -1 for an InputLayer's own.
  std::vector<int> mapped_from_;
};

// Accepts float32 as a string, or as a policy object of Keras 2 ("Policy") or 3 ("DTypePolicy").
void CheckDtype(absl::string_view field, ConfigReader& config);

// Reads the config of a Functional model into the builder.
absl::Status ReadFunctional(const nlohmann::json& config, absl::Span<const int64_t> lines,
                            ModelBuilder& builder);

}  // namespace cairn::nn

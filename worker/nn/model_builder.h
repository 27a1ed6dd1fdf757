// Makes a Model, layer by layer, from the JSON of its layers. What a file says of the connections between
// them is the caller's to read: model_json.cc for chains, functional_json.cc for graphs.
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
#include "worker/nn/config_reader.h"
#include "worker/nn/model.h"

namespace cairn::nn {

// One entry of a file's `layers`, read but not connected.
struct ReadLayer {
  std::string where;  // "layer 'conv2d' (Conv2D), line 17", for messages
  std::string name;
  bool trainable = true;
  std::shared_ptr<const Layer> layer;  // null for an InputLayer
  Shape input_shape;                   // of an InputLayer, or what a first layer says of its input
  bool has_input_shape = false;
  // A function that merges: it aligns shapes from their last axis, the batch among them, where a layer
  // expands those of fewer axes behind the batch. The two agree on shapes of one rank.
  bool equal_ranks = false;
  std::string
      device{};  // "device" beside class_name or in the config, which Keras does not have; empty: none
};

class ModelBuilder {
 public:
  // The names that the file gives; automatic ones keep clear of them. INVALID_ARGUMENT when one comes twice.
  absl::Status CollectNames(const nlohmann::json& layers);

  // `position`: in the file, for a layer without a name. `line` 0: unknown.
  absl::StatusOr<ReadLayer> Read(const nlohmann::json& layer, size_t position, int64_t line);

  // Returns what Node::inputs calls it.
  int AddInput(const std::string& name, const Shape& shape);
  // A call of `layer` on the values of `inputs`. Returns the node's index. A layer that was called before
  // keeps its variables: INVALID_ARGUMENT when its inputs have other shapes now.
  absl::StatusOr<int> AddNode(const ReadLayer& layer, const std::vector<int>& inputs);

  const Shape& ShapeOf(int value) const;
  bool empty() const { return model_.nodes_.empty(); }
  void SetName(std::string name, bool functional) {
    model_.name_ = std::move(name);
    model_.functional_ = functional;
  }
  // The finished model; the builder is empty after it.
  Model Finish(CompileConfig compile_config, std::string canonical_json);

 private:
  std::string UniqueName(absl::string_view class_name);
  absl::Status AddVariables(const ReadLayer& layer, absl::Span<const Shape> inputs, Node& node);

  Model model_;
  std::set<std::string> names_;
  std::map<std::string, int> suffixes_;           // of automatic names, by the name without one: the last
  std::map<const Layer*, size_t> first_node_of_;  // of a layer that has been called
};

// Keras' to_snake_case: Conv2D conv2d, MaxPooling2D max_pooling2d.
std::string SnakeCase(absl::string_view class_name);

// float32 as a string, or as the policy objects of Keras 2 ("Policy") and 3 ("DTypePolicy").
void CheckDtype(absl::string_view field, ConfigReader& config);

// Reads the config of a Functional model into the builder.
absl::Status ReadFunctional(const nlohmann::json& config, absl::Span<const int64_t> lines,
                            ModelBuilder& builder);

}  // namespace cairn::nn

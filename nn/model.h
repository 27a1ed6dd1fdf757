// A network as its Keras JSON describes it: layers, shapes, variables, and the arguments of `compile()`.
// Immutable after parsing, independent of devices, and safe to read from any thread. A Replica runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "common/ids/id_map.h"
#include "nn/input_sizes.h"
#include "nn/layer/compile_config.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// An input of the network.
struct ModelInput {
  // The name of its InputLayer. Inputs that different layers map to ids have one name.
  std::string name;
  Shape shape;  // without the batch
  // An integer type if a layer looks rows up by the values: that of the InputLayer, or else int64. Also that of the
  // InputLayer if it is int32 or int64 and a layer compares the values. All other inputs are float32.
  DType dtype = DType::kFloat32;
  // An example has any number of values, also none: int64 ids that an Embedding or a layer with a row_table() looks up
  // and pools, or the float32 weights of such ids. `shape` is [1].
  bool ragged = false;
  // Replica::ForwardBackward() computes the gradient of the loss with respect to this float32 input. Set for the
  // inputs that ReplaceEmbeddings() makes.
  bool needs_gradient = false;
  // The values of the input are strings, and `map` is set.
  bool text = false;
  // Makes the ids that the network takes of the input's values. Null: it takes the values.
  std::shared_ptr<const IdMap> map{};
  // The layer of `map`, if it is no node since its output is the ids. Null otherwise.
  std::shared_ptr<const Layer> ids_layer{};

  // The kind of the values before `map`.
  ValueKind kind() const {
    return text                                              ? ValueKind::kText
           : map != nullptr && map->Takes(ValueKind::kFloat) ? ValueKind::kFloat
                                                             : ValueKind::kInteger;
  }
};

// An output of the network.
struct ModelOutput {
  std::string name;   // that of its layer, or its key if the file has a dictionary of outputs; unique
  Shape shape;        // without the batch
  int64_t begin = 0;  // its first element among those of all outputs of an example
  // Its time steps, the first axis, have a mask: a number for each step follows its elements, 0 for those that the loss
  // leaves out.
  bool masked = false;
};

// A group of Keras' files of weights, which are nested as the models are.
struct KerasGroup {
  // Its path within the group around it, with the class and the order of the layer in its model ("layers/conv2d_1"), or
  // with the attribute of the layer around it ("_self_attention_layer").
  std::string group;
  std::string name;  // that of the layer in its model
};

// One use of a layer in the network. Nodes are ordered: inputs come before their users, the output is last. Several
// outputs, and their masks, are joined into one by nodes that the file does not have.
struct Node {
  // Denotes an input of the model in Node::inputs: -1 is the first, -2 the second. Its own inverse.
  static constexpr int OfModelInput(int input) { return -1 - input; }

  std::shared_ptr<const Layer> layer;  // shared by several nodes if the layer is used several times
  std::vector<int> inputs;             // nodes, or OfModelInput(): the layer's own, then masks that it takes
  Shape output_shape;                  // without the batch
  std::vector<int> variables;          // indices into Model::variables(), in the layer's order
  std::string device{};                // as in the file, not validated; empty if absent
  std::vector<int> masked{};           // [mask at the end of `inputs`] the own input whose steps it masks
  std::vector<KerasGroup> groups{};    // of the models around the layer, then of the layer
  float statistics_weight = 1;         // as in LayerOpParams

  absl::Span<const int> own_inputs() const {
    return absl::MakeConstSpan(inputs).first(inputs.size() - masked.size());
  }
};

// A row of the model's summary: a layer of the model, which may be a model itself.
struct SummaryRow {
  std::string name, class_name;
  std::string output_shape{};               // "(None, 28, 28)"
  std::vector<int> variables{};             // indices into Model::variables()
  std::vector<std::string> connected_to{};  // the inputs of all its calls: "conv2d[0][0]"
};

// One variable of the whole model, in Keras' order.
struct ModelVariable {
  std::string name;  // "conv2d/kernel": unique
  Shape shape;
  InitializerSpec initializer;
  int64_t offset = 0;  // first element in the model's flat parameter and gradient buffers
  RegularizerSpec regularizer{};
  // Set if no optimizer trains the variable: the momentum of a statistic (see VariableSpec), or 1 for a
  // constant.
  std::optional<float> moving_average_momentum{};
  std::optional<Constraint> constraint{};  // valid for the shape

  bool trainable() const { return !moving_average_momentum.has_value(); }
};

class Model {
 public:
  // INVALID_ARGUMENT naming `source`, the layer and the wrong field. The error for an unknown layer lists the
  // supported ones. `sizes` fix those of the inputs that the file leaves open.
  static absl::StatusOr<Model> FromJson(absl::string_view text, absl::string_view source,
                                        const InputSizes& sizes = {});
  // Reads a file of Keras' JSON. worker/export/model_source.h reads Keras' other files.
  static absl::StatusOr<Model> FromFile(const std::string& path);

  const std::string& name() const { return name_; }
  // Whether the file contains a Functional model. Otherwise it contains a Sequential model.
  bool functional() const { return functional_; }
  const std::vector<ModelInput>& inputs() const { return inputs_; }  // at least one
  // Without the batch: the shape of the only input, or [elements of all inputs].
  Shape input_shape() const;
  const std::vector<ModelOutput>& outputs() const { return outputs_; }  // at least one
  // Without the batch: the shape of the only output, or [elements of all outputs and their masks].
  const Shape& output_shape() const { return nodes_.back().output_shape; }
  const std::vector<Node>& nodes() const { return nodes_; }  // at least one
  // The number of nodes at the end that join several outputs or masks; 0 if there is one output without a mask.
  size_t joining_nodes() const { return joining_nodes_; }
  const std::vector<ModelVariable>& variables() const { return variables_; }
  int64_t num_parameters() const { return num_parameters_; }
  const std::vector<SummaryRow>& rows() const { return rows_; }
  const CompileConfig& compile_config() const { return compile_config_; }
  // The document in a canonical form, without its devices. Workers compare it to check that they train the
  // same model.
  const std::string& canonical_json() const { return canonical_json_; }

  // The same network for shorter sequences: the same variables, inputs and outputs, of which some have a shorter first
  // axis. In rising order of their lengths; empty unless AddShorter() added them. They have no shorter ones themselves.
  const std::vector<Model>& shorter() const { return shorter_; }
  // Adds one that is longer than those before. INVALID_ARGUMENT naming the variable, input or output that differs in
  // more than the length, or if no input is shorter.
  absl::Status AddShorter(Model shorter);

  // Whether a layer normalizes by a whole batch: Layer::synchronizes_batch().
  bool synchronizes_batch() const;
  // INVALID_ARGUMENT, naming the layer, if one does. To be called if batches are divided among `parts`: "2 workers".
  absl::Status CheckBatchMayBeDivided(absl::string_view parts) const;

  // Initial values of all variables in the flat buffer's order [num_parameters()]. The values of a variable
  // depend only on (seed, its name).
  std::vector<float> InitialParameters(uint64_t seed) const;

 private:
  friend class ModelBuilder;
  friend class EmbeddingReplacer;
  Model() = default;
  std::string name_;
  bool functional_ = false;
  std::vector<ModelInput> inputs_;
  std::vector<Node> nodes_;
  std::vector<ModelOutput> outputs_;
  size_t joining_nodes_ = 0;
  std::vector<ModelVariable> variables_;
  int64_t num_parameters_ = 0;
  std::vector<SummaryRow> rows_;
  CompileConfig compile_config_;
  std::string canonical_json_;
  std::vector<Model> shorter_;
};

// The table of Keras' `model.summary()`, as Keras 3 prints it on a terminal of 80 columns.
std::string SummaryTable(const Model& model);

}  // namespace cairn::nn

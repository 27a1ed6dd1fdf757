// A network as its Keras JSON describes it: layers, shapes, variables, and what `compile()` said about
// training. Immutable after parsing and free of any device; safe to read from any thread. A Replica runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "worker/nn/compile_config.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

// What is fed to the network.
struct ModelInput {
  std::string name;  // of its InputLayer
  Shape shape;       // without the batch
};

// One use of a layer in the network. Nodes stand in an order in which inputs come before their users, the
// output last.
struct Node {
  // The model's inputs in Node::inputs: -1 is the first, -2 the second.
  static constexpr int OfModelInput(int input) { return -1 - input; }

  std::shared_ptr<const Layer> layer;  // of several nodes, where a layer is used several times
  std::vector<int> inputs;             // nodes, or OfModelInput()
  Shape output_shape;                  // without the batch
  std::vector<int> variables;          // of Model::variables(), in the layer's order
  std::string device{};                // as the file says, not looked into; empty: it does not say
};

// One variable of the whole model, in Keras' order.
struct ModelVariable {
  std::string name;  // "conv2d/kernel": unique
  Shape shape;
  InitializerSpec initializer;
  int64_t offset = 0;  // first element in the model's flat parameter and gradient buffers
  RegularizerSpec regularizer{};
  // Set where no optimizer trains it: VariableSpec's statistic, or 1 for what never changes.
  std::optional<float> moving_average_momentum{};

  bool trainable() const { return !moving_average_momentum.has_value(); }
};

class Model {
 public:
  // INVALID_ARGUMENT naming `source`, the layer and the field that is wrong; an unknown layer's error lists
  // the supported ones.
  static absl::StatusOr<Model> FromJson(absl::string_view text, absl::string_view source);
  // The same of a file of Keras' JSON. worker/export/model_source.h reads Keras' other files.
  static absl::StatusOr<Model> FromFile(const std::string& path);

  const std::string& name() const { return name_; }
  bool functional() const { return functional_; }  // as the file has it; otherwise Sequential
  const std::vector<ModelInput>& inputs() const { return inputs_; }  // at least one
  // Without the batch: of the only input, or [elements of all of them].
  Shape input_shape() const;
  const Shape& output_shape() const { return nodes_.back().output_shape; }  // without the batch
  const std::vector<Node>& nodes() const { return nodes_; }                 // at least one
  const std::vector<ModelVariable>& variables() const { return variables_; }
  int64_t num_parameters() const { return num_parameters_; }
  const CompileConfig& compile_config() const { return compile_config_; }
  // The document as read, in one canonical form, but for its devices: what workers compare to know that they
  // train the same model.
  const std::string& canonical_json() const { return canonical_json_; }

  // Initial values of all variables in the flat buffer's order [num_parameters()]. Each variable's depend on
  // (seed, its name) alone.
  std::vector<float> InitialParameters(uint64_t seed) const;

 private:
  friend class ModelBuilder;
  Model() = default;
  std::string name_;
  bool functional_ = false;
  std::vector<ModelInput> inputs_;
  std::vector<Node> nodes_;
  std::vector<ModelVariable> variables_;
  int64_t num_parameters_ = 0;
  CompileConfig compile_config_;
  std::string canonical_json_;
};

// Keras' `model.summary()` table, as Keras 3 prints it on a terminal of 80 columns.
std::string SummaryTable(const Model& model);

}  // namespace cairn::nn

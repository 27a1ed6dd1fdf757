// A network as its Keras JSON describes it: layers, shapes, variables, and what `compile()` said about training.
// Immutable after parsing and free of any device; safe to read from any thread. A Replica runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

// A Keras object that only parameters describe: an optimizer with its hyperparameters, a loss with its options.
struct KerasObject {
  std::string class_name;                 // "Adam", "SparseCategoricalCrossentropy"
  std::map<std::string, double> config;   // numbers and booleans of its config; nulls are absent
};

// `compile_config` of the model file, each part optional.
struct CompileConfig {
  std::optional<KerasObject> optimizer;
  std::optional<KerasObject> loss;
  std::vector<std::string> metrics;
};

// One trainable variable of the whole model, in Keras' order.
struct ModelVariable {
  std::string name;  // "conv2d/kernel": unique
  Shape shape;
  InitializerSpec initializer;
  int64_t offset = 0;  // first element in the model's flat parameter and gradient buffers
};

class Model {
 public:
  // INVALID_ARGUMENT naming `source`, the layer and the field that is wrong; an unknown layer's error lists the
  // supported ones.
  static absl::StatusOr<Model> FromJson(absl::string_view text, absl::string_view source);
  // The same for a file: Keras' JSON, or a .keras archive (its config.json).
  static absl::StatusOr<Model> FromFile(const std::string& path);

  const std::string& name() const { return name_; }
  const Shape& input_shape() const { return input_shape_; }    // without the batch
  const Shape& output_shape() const { return output_shape_; }  // without the batch
  absl::Span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  const std::vector<ModelVariable>& variables() const { return variables_; }
  int64_t num_parameters() const { return num_parameters_; }
  const CompileConfig& compile_config() const { return compile_config_; }
  // The document as read, in one canonical form: what workers compare to know that they train the same model.
  const std::string& canonical_json() const { return canonical_json_; }

  // Initial values of all variables in the flat buffer's order [num_parameters()]. Each variable's depend on
  // (seed, its name) alone.
  std::vector<float> InitialParameters(uint64_t seed) const;

 private:
  Model() = default;
  std::string name_;
  Shape input_shape_;
  Shape output_shape_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<ModelVariable> variables_;
  int64_t num_parameters_ = 0;
  CompileConfig compile_config_;
  std::string canonical_json_;
};

// Keras' `model.summary()` table.
std::string SummaryTable(const Model& model);

}  // namespace cairn::nn

// Reads the entries of the `layers` of a model file, one by one: what each says, and its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/tensor_view.h"
#include "nn/functions/keras_functions.h"
#include "nn/layer/layer.h"
#include "nn/layers/input_layer.h"
#include "nn/model.h"

namespace cairn::nn {

// The common properties of the layers of a model, or of a model within it.
struct LayerScope {
  std::string prefix{};   // of their names: "tower/"; empty for the model itself
  bool trainable = true;  // for layers that do not say
  std::string device{};   // the same; empty: none

  bool nested() const { return !prefix.empty(); }
};

// An entry of a file's `layers`: read, but not connected.
struct ReadLayer {
  std::string where{};  // "layer 'conv2d' (Conv2D), line 17", for messages
  std::string name{};   // with the prefix of its scope
  std::string local_name{};
  std::vector<KerasGroup> groups{};  // as in Node
  bool trainable = true;
  std::shared_ptr<const Layer> layer{};  // null for an InputLayer, and for a function
  // A function of keras.ops, such as `a + b`. Its output has no mask of time steps.
  std::shared_ptr<const KerasFunction> function{};
  std::shared_ptr<const Layer>
      activity{};  // passes the layer's output on, and adds the penalty on it; may be null
  // An InputLayer's shape, or the input shape that a first layer gives. Sizes are known unless the scope is nested.
  OpenShape input_shape{};
  bool has_input_shape = false;
  DType input_type = DType::kFloat32;  // the dtype of an InputLayer
  bool ragged = false;                 // of an InputLayer
  bool text = false;                   // the dtype of an InputLayer is string
  // "device" next to class_name or in the config, an extension of Keras' format; empty: none.
  std::string device{};
};

// One object reads one model file. One thread at a time. Errors are INVALID_ARGUMENT and name the layer, its line and
// the fault.
class LayerReader {
 public:
  // Collects the names of a list of layers, so that automatic names avoid them. INVALID_ARGUMENT if a name occurs
  // twice.
  absl::Status CollectNames(const nlohmann::json& layers, absl::string_view prefix);
  // Keras' automatic names for layers of a scope, without its prefix: conv2d, conv2d_1, ...
  std::string UniqueName(absl::string_view class_name, absl::string_view prefix);

  // `position` in the file identifies a layer without a name. `line` 0: unknown.
  absl::StatusOr<ReadLayer> Read(const nlohmann::json& layer, size_t position, int64_t line,
                                 const LayerScope& scope);

 private:
  std::set<std::string> names_;
  // [name without suffix] The last suffix that an automatic name got.
  std::map<std::string, int> suffixes_;
};

}  // namespace cairn::nn

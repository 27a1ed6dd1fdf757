// Sequential models: a list of layers, each called on the output of the one before.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/dtype_policy.h"
#include "nn/layers/input_layer.h"
#include "nn/model_graph.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The input of a model whose first layer is not an InputLayer.
GraphLayer ImplicitInput(const GraphLayer& first) {
  return {.read = {.where = first.read.where,
                   .name = first.read.name,
                   .input_shape = first.read.input_shape,
                   .has_input_shape = first.read.has_input_shape}};
}

// The shape that Keras has built the model for, which may repeat that of the first layer.
absl::Status AddBuiltShape(const OpenShape& built, ReadLayer& input) {
  if (!input.has_input_shape) {
    input.input_shape = built;
    input.has_input_shape = true;
  }
  if (built == input.input_shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("config: build_input_shape ", ToString(built),
                                                 " is not the first layer's ", ToString(input.input_shape)));
}

}  // namespace

absl::StatusOr<ModelGraph> ReadSequential(const json& config, std::vector<int64_t> lines,
                                          const GraphPlace& place, ModelBuilder& builder) {
  ConfigReader reader(config);
  ModelGraph graph = {.name = reader.String("name", "sequential"), .class_name = "Sequential"};
  const bool nested = place.scope.nested();
  if (nested) {
    reader.Ignore({"trainable"});
  } else {
    reader.Refuse("trainable", true);
  }
  CheckDtype("dtype", reader);
  const json& layers = reader.Raw("layers");
  if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
  const bool built = !reader.Raw("build_input_shape").is_null();
  const OpenShape built_for = built ? ReadBatchShape("build_input_shape", nested, reader) : OpenShape();
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");

  CAIRN_RETURN_IF_ERROR(builder.layers().CollectNames(layers, place.scope.prefix));
  LayerListReader list(place, std::move(lines), builder);
  Tensor value;
  for (size_t position = 0; position < layers.size(); ++position) {
    CAIRN_ASSIGN_OR_RETURN(GraphLayer layer, list.Read(layers[position], position));
    if (layer.read.function != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          layer.read.where, ": is a function of keras.ops, which only a Functional model can have"));
    }
    if (position == 0) {
      GraphLayer input = layer.is_input() ? layer : ImplicitInput(layer);
      if (built) CAIRN_RETURN_IF_ERROR(AddBuiltShape(built_for, input.read));
      if (!input.read.has_input_shape && !nested) {
        return absl::InvalidArgumentError(
            absl::StrCat(layer.read.where, ": batch_shape: required, such as [null,28,28,1]"));
      }
      value = {.layer = input.read.local_name};
      graph.inputs.push_back(value);
      graph.layers.push_back(std::move(input));
    }
    if (layer.is_input()) {
      if (position == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(layer.read.where, ": an InputLayer is only supported as the first layer"));
    }
    if (layer.read.layer != nullptr && layer.read.layer->num_outputs() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          layer.read.where,
          ": has several outputs (return_state, or merge_mode null), but a Sequential model passes "
          "one output on: use a Functional model"));
    }
    layer.calls.push_back({.inputs = {std::exchange(value, {.layer = layer.read.local_name})}});
    graph.layers.push_back(std::move(layer));
  }
  graph.outputs.push_back(value);
  return graph;
}

}  // namespace cairn::nn

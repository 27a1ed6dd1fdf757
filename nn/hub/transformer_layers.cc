#include "nn/hub/transformer_layers.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/hub/hub_call.h"
#include "nn/hub/hub_graph.h"
#include "nn/layer/dtype_policy.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The last extent of a shape, or 0.
int64_t LastOf(const json& shape) {
  const bool known = shape.is_array() && !shape.empty() && shape.back().is_number_integer();
  return known ? shape.back().get<int64_t>() : 0;
}

json FieldOf(const json& object, const char* field) {
  return object.is_object() ? object.value(field, json()) : json();
}

// The width of the sequence that a layer has been built for, or is called on; 0: the JSON does not say.
int64_t WidthOf(const json& layer) {
  const json built = FieldOf(layer, "build_config"), config = FieldOf(layer, "config");
  const json calls = FieldOf(layer, "inbound_nodes");
  const json args = calls.is_array() && !calls.empty() ? FieldOf(calls[0], "args") : json();
  const json tensor = args.is_array() && !args.empty() ? args[0] : json();
  for (const json& shape : {FieldOf(config, "decoder_sequence_shape"), FieldOf(built, "input_shape"),
                            FieldOf(FieldOf(built, "shapes_dict"), "decoder_sequence_shape"),
                            FieldOf(FieldOf(built, "shapes_dict"), "inputs_shape"),
                            FieldOf(FieldOf(tensor, "config"), "shape")}) {
    if (const int64_t width = LastOf(shape); width > 0) return width;
  }
  return 0;
}

// Reads `trainable`, and checks the type of the numbers.
json ReadTrainable(ConfigReader& config) {
  CheckDtype("dtype", config);
  return config.Bool("trainable", true);
}

// The fields that TransformerEncoder and TransformerDecoder share, and the layers that they make of them.
class Transformer {
 public:
  Transformer(ConfigReader& config, int64_t width)
      : width_(width),
        name(config.String("name", "")),
        trainable_(ReadTrainable(config)),
        intermediate_(config.PositiveInt("intermediate_dim")),
        heads_(config.PositiveInt("num_heads")),
        dropout_(config.Number("dropout", 0)),
        activation_(config.Raw("activation").is_null() ? json("relu") : config.Raw("activation")),
        epsilon_(config.Number("layer_norm_epsilon", 1e-5)),
        kernel_initializer_(config.Raw("kernel_initializer")),
        bias_initializer_(config.Raw("bias_initializer")),
        normalizes_first_(config.Bool("normalize_first", false)) {
    if (width_ > 0 && width_ < heads_) {
      config.Fail("num_heads", absl::StrCat(heads_, " is more than the width of the sequence, ", width_));
    }
  }

  // A block: a normalization before or after `layers`, dropout, and the addition of the input `x`.
  template <typename Layers>
  std::string Block(const std::string& block, const std::string& x, const Layers& layers) {
    const std::string norm = block + "_layer_norm";
    const json config = Own({{"epsilon", epsilon_}});
    std::string y = normalizes_first_ ? graph.Add("LayerNormalization", norm, config, {x}) : x;
    y = graph.Add("Dropout", block + "_dropout", {{"rate", dropout_}}, {layers(y)});
    y = graph.Add("Add", block + "_add", json::object(), {y, x});
    return normalizes_first_ ? y : graph.Add("LayerNormalization", norm, config, {y});
  }
  std::string Attention(const char* class_name, const std::string& layer, std::vector<std::string> inputs,
                        json kwargs) {
    json config = Own({{"num_heads", heads_}, {"key_dim", width_ / heads_}, {"dropout", dropout_}});
    if (absl::StartsWith(class_name, "Cached")) config["masks_keys"] = true;
    return graph.Add(class_name, layer, WithInitializers(std::move(config)), std::move(inputs),
                     std::move(kwargs));
  }
  std::string Feedforward(const std::string& x) {
    return Block("feedforward", x, [&](const std::string& input) {
      json inner = WithInitializers(Own({{"units", intermediate_}, {"activation", activation_}}));
      const std::string y = graph.Add("Dense", "feedforward_intermediate_dense", std::move(inner), {input});
      return graph.Add("Dense", "feedforward_output_dense", WithInitializers(Own({{"units", width_}})), {y});
    });
  }

  HubGraph graph;

 private:
  json Own(json config) const {
    config["trainable"] = trainable_;
    return config;
  }
  json WithInitializers(json config) const {
    config["kernel_initializer"] = kernel_initializer_;
    config["bias_initializer"] = bias_initializer_;
    return config;
  }

  const int64_t width_;

 public:
  const std::string name;

 private:
  const json trainable_;
  const int64_t intermediate_, heads_;
  const double dropout_;
  const json activation_;
  const double epsilon_;
  const json kernel_initializer_, bias_initializer_;
  const bool normalizes_first_;
};

absl::Status UnknownWidth() {
  return absl::InvalidArgumentError(
      "build_config: required, with the input_shape that the layer has been built for");
}

// The masks of a call of attention: `padding` hides keys, and `pairs` pairs of a query and a key.
json MaskArguments(const HubCall& call, const char* padding, const char* pairs) {
  json kwargs = json::object();
  if (call.has(padding)) kwargs["key_mask"] = padding;
  if (call.has(pairs)) kwargs["attention_mask"] = pairs;
  return kwargs;
}

// Adds an input for each tensor of the call.
void AddInputs(const HubCall& call, HubGraph& graph) {
  for (const std::string& tensor : call.tensors)
    graph.Input(tensor, absl::EndsWith(tensor, "padding_mask") ? 2 : 3);
}

}  // namespace

void CopyRotaryOptions(ConfigReader& config, json& to) {
  for (const char* const field :
       {"rope_max_wavelength", "rope_position_scaling_factor", "rope_frequency_adjustment_factor",
        "rope_low_freq_factor", "rope_high_freq_factor", "rope_pretraining_sequence_length"}) {
    to[field] = config.Raw(field);
  }
}

absl::StatusOr<json> ExpandTokenAndPositionEmbedding(json& layer) {
  CAIRN_RETURN_IF_ERROR(NormalizeHubCalls({"inputs"}, layer));
  const json fields = FieldOf(layer, "config");
  ConfigReader config(fields);
  const std::string name = config.String("name", "");
  const json trainable = ReadTrainable(config), initializer = config.Raw("embeddings_initializer");
  json tokens = {{"input_dim", config.PositiveInt("vocabulary_size")},
                 {"output_dim", config.PositiveInt("embedding_dim")},
                 {"mask_zero", config.Bool("mask_zero", false)},
                 {"tie_weights", config.Bool("tie_weights", true)},
                 {"embeddings_initializer", initializer.is_null() ? json("uniform") : initializer},
                 {"trainable", trainable}};
  json positions = {{"sequence_length", config.PositiveInt("sequence_length")},
                    {"initializer", tokens["embeddings_initializer"]},
                    {"passes_mask", true},
                    {"trainable", trainable}};
  CAIRN_RETURN_IF_ERROR(config.Finish());
  HubGraph graph;
  const std::string ids = graph.Input("inputs", 2);
  const std::string words = graph.Add("ReversibleEmbedding", "token_embedding", std::move(tokens), {ids});
  const std::string places =
      graph.Add("PositionEmbedding", "position_embedding", std::move(positions), {words});
  return graph.Config(name, {graph.Add("Add", "add", json::object(), {words, places})});
}

absl::StatusOr<json> ExpandTransformerEncoder(json& layer) {
  CAIRN_ASSIGN_OR_RETURN(const HubCall call,
                         NormalizeHubCalls({"inputs", "padding_mask", "attention_mask"}, layer));
  const json fields = FieldOf(layer, "config");
  ConfigReader config(fields);
  const int64_t width = WidthOf(layer);
  Transformer made(config, width);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  if (width == 0) return UnknownWidth();
  AddInputs(call, made.graph);
  const std::string attended = made.Block("self_attention", "inputs", [&](const std::string& x) {
    return made.Attention("MultiHeadAttention", "self_attention_layer", {x, x},
                          MaskArguments(call, "padding_mask", "attention_mask"));
  });
  return made.graph.Config(made.name, {made.Feedforward(attended)});
}

absl::StatusOr<json> ExpandTransformerDecoder(json& layer) {
  CAIRN_ASSIGN_OR_RETURN(
      const HubCall call,
      NormalizeHubCalls({"decoder_sequence", "encoder_sequence", "decoder_padding_mask",
                         "decoder_attention_mask", "encoder_padding_mask", "encoder_attention_mask"},
                        layer));
  const json fields = FieldOf(layer, "config");
  ConfigReader config(fields);
  const int64_t width = WidthOf(layer);
  Transformer made(config, width);
  config.Ignore({"decoder_sequence_shape", "encoder_sequence_shape"});
  CAIRN_RETURN_IF_ERROR(config.Finish());
  if (width == 0) return UnknownWidth();
  AddInputs(call, made.graph);
  std::string y = made.Block("self_attention", "decoder_sequence", [&](const std::string& x) {
    json kwargs = MaskArguments(call, "decoder_padding_mask", "decoder_attention_mask");
    kwargs["use_causal_mask"] = call.causal;
    return made.Attention("CachedMultiHeadAttention", "self_attention", {x, x}, std::move(kwargs));
  });
  if (call.has("encoder_sequence")) {
    y = made.Block("cross_attention", y, [&](const std::string& x) {
      return made.Attention("CachedMultiHeadAttention", "cross_attention", {x, "encoder_sequence"},
                            MaskArguments(call, "encoder_padding_mask", "encoder_attention_mask"));
    });
  }
  return made.graph.Config(made.name, {made.Feedforward(y)});
}

absl::StatusOr<json> ExpandLlamaDecoder(json& layer) {
  CAIRN_ASSIGN_OR_RETURN(
      const HubCall call,
      NormalizeHubCalls({"decoder_sequence", "decoder_padding_mask", "decoder_attention_mask"}, layer));
  const json fields = FieldOf(layer, "config");
  ConfigReader config(fields);
  const int64_t width = WidthOf(layer);
  const std::string name = config.String("name", "");
  const json trainable = ReadTrainable(config), initializer = config.Raw("kernel_initializer");
  const json activation = config.Raw("activation");
  const json norm = {{"epsilon", config.Number("layer_norm_epsilon", 1e-5)},
                     {"passes_mask", true},
                     {"trainable", trainable}};
  const int64_t intermediate = config.PositiveInt("intermediate_dim"),
                heads = config.PositiveInt("num_query_heads");
  json attention = {{"num_query_heads", heads},
                    {"num_key_value_heads", config.PositiveInt("num_key_value_heads")},
                    {"kernel_initializer", initializer},
                    {"trainable", trainable}};
  CopyRotaryOptions(config, attention);
  config.Refuse("dropout", 0);
  if (width > 0 && width < heads) {
    config.Fail("num_query_heads", absl::StrCat(heads, " is more than the width of the sequence, ", width));
  }
  CAIRN_RETURN_IF_ERROR(config.Finish());
  if (width == 0) return UnknownWidth();
  attention["head_dim"] = width / heads;
  const auto dense = [&](int64_t units, const json& function) -> json {
    return {{"units", units},
            {"use_bias", false},
            {"activation", function},
            {"kernel_initializer", initializer},
            {"trainable", trainable}};
  };
  HubGraph graph;
  AddInputs(call, graph);
  json kwargs = MaskArguments(call, "decoder_padding_mask", "decoder_attention_mask");
  kwargs["use_causal_mask"] = true;
  std::string x = graph.Add("LlamaLayerNorm", "self_attention_layernorm", norm, {"decoder_sequence"});
  x = graph.Add("LlamaAttention", "self_attention", std::move(attention), {x, x}, std::move(kwargs));
  const std::string attended =
      graph.Add("Add", "self_attention_add", json::object(), {x, "decoder_sequence"});
  x = graph.Add("LlamaLayerNorm", "feedforward_layernorm", norm, {attended});
  const std::string gate =
      graph.Add("Dense", "feedforward_gate_dense",
                dense(intermediate, activation.is_null() ? json("silu") : activation), {x});
  x = graph.Add("Dense", "feedforward_intermediate_dense", dense(intermediate, "linear"), {x});
  x = graph.Add("Multiply", "feedforward_gate", json::object(), {x, gate});
  x = graph.Add("Dense", "feedforward_output_dense", dense(width, "linear"), {x});
  return graph.Config(name, {graph.Add("Add", "feedforward_add", json::object(), {x, attended})});
}

}  // namespace cairn::nn

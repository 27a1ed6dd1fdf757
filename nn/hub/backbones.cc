#include "nn/hub/backbones.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/hub/hub_graph.h"
#include "nn/hub/transformer_layers.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/dtype_policy.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr const char* kGelu = "keras_hub>gelu_approximate";

json NormalInitializer(double stddev, const char* class_name = "RandomNormal") {
  return {{"class_name", class_name}, {"config", {{"mean", 0.0}, {"stddev", stddev}}}};
}

// A backbone: the sizes that all have, and its graph.
class Backbone {
 public:
  explicit Backbone(ConfigReader& config)
      : name_(config.String("name", "")),
        vocabulary_(config.PositiveInt("vocabulary_size")),
        layers_(config.PositiveInt("num_layers")),
        width_(config.PositiveInt("hidden_dim")),
        intermediate_(config.PositiveInt("intermediate_dim")),
        dropout_(config.Number("dropout", 0)) {
    CheckDtype("dtype", config);
    config.Ignore({"trainable"});
    constexpr int64_t kMaxLayers = 1000;  // of which each is read as some twenty layers
    if (layers_ > kMaxLayers) config.Fail("num_layers", absl::StrCat(layers_, ", at most ", kMaxLayers));
  }

  // An input of integers. As Keras orders a dictionary, inputs come in the order of their names.
  std::string Ids(const char* name) { return graph.Input(name, 2, "int32"); }
  std::string Tokens(const std::string& ids, const json& initializer, bool tied) {
    return graph.Add("ReversibleEmbedding", "token_embedding",
                     {{"input_dim", vocabulary_},
                      {"output_dim", width_},
                      {"tie_weights", tied},
                      {"embeddings_initializer", initializer}},
                     {ids});
  }
  std::string Positions(const std::string& tokens, int64_t length, const json& initializer) {
    return graph.Add("PositionEmbedding", "position_embedding",
                     {{"sequence_length", length}, {"initializer", initializer}}, {tokens});
  }
  std::string Dropout(const std::string& x) {
    return graph.Add("Dropout", "embeddings_dropout", {{"rate", dropout_}}, {x});
  }
  // Adds the layers one after the other.
  std::string Stack(const char* class_name, std::string x, json config, const json& kwargs) {
    config["intermediate_dim"] = intermediate_;
    config["dropout"] = dropout_;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      x = graph.Add(class_name, absl::StrCat("transformer_layer_", layer), config, {x}, kwargs);
      // A layer of keras_hub learns its width from this.
      graph.SetBuildShape({nullptr, nullptr, width_});
    }
    return x;
  }
  json Config(std::vector<json> outputs) const { return graph.Config(name_, std::move(outputs)); }
  int64_t width() const { return width_; }

  HubGraph graph;

 private:
  const std::string name_;
  const int64_t vocabulary_, layers_, width_, intermediate_;
  const double dropout_;
};

}  // namespace

absl::StatusOr<json> ExpandGpt2Backbone(const json& fields) {
  ConfigReader config(fields);
  Backbone made(config);
  const int64_t heads = config.PositiveInt("num_heads"),
                length = config.PositiveInt("max_sequence_length", 1024);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string mask = made.Ids("padding_mask"), ids = made.Ids("token_ids");
  const std::string tokens = made.Tokens(ids, NormalInitializer(0.01), /*tied=*/true);
  const std::string positions = made.Positions(tokens, length, NormalInitializer(0.02));
  std::string x = made.graph.Add("Add", "embeddings_add", json::object(), {tokens, positions});
  x = made.Stack("TransformerDecoder", made.Dropout(x),
                 {{"num_heads", heads},
                  {"layer_norm_epsilon", 1e-5},
                  {"activation", kGelu},
                  {"kernel_initializer", NormalInitializer(0.02)},
                  {"normalize_first", true}},
                 {{"decoder_padding_mask", mask}});
  return made.Config({made.graph.Add("LayerNormalization", "layer_norm", {{"epsilon", 1e-5}}, {x})});
}

absl::StatusOr<json> ExpandBertBackbone(const json& fields) {
  ConfigReader config(fields);
  Backbone made(config);
  const int64_t heads = config.PositiveInt("num_heads"),
                length = config.PositiveInt("max_sequence_length", 512),
                segments = config.PositiveInt("num_segments", 2);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const json initializer = NormalInitializer(0.02, "TruncatedNormal");
  const std::string mask = made.Ids("padding_mask"), segment_ids = made.Ids("segment_ids"),
                    ids = made.Ids("token_ids");
  const std::string tokens = made.Tokens(ids, initializer, /*tied=*/true);
  const std::string positions = made.Positions(tokens, length, initializer);
  const std::string of_segments = made.graph.Add(
      "Embedding", "segment_embedding",
      {{"input_dim", segments}, {"output_dim", made.width()}, {"embeddings_initializer", initializer}},
      {segment_ids});
  std::string x = made.graph.Add("Add", "embeddings_add", json::object(), {tokens, positions, of_segments});
  x = made.graph.Add("LayerNormalization", "embeddings_layer_norm", {{"epsilon", 1e-12}}, {x});
  x = made.Stack("TransformerEncoder", made.Dropout(x),
                 {{"num_heads", heads},
                  {"layer_norm_epsilon", 1e-12},
                  {"activation", kGelu},
                  {"kernel_initializer", initializer}},
                 {{"padding_mask", mask}});
  const std::string first = made.graph.Add("SelectStep", "get_item", {{"step", 0}}, {x});
  const std::string pooled = made.graph.Add(
      "Dense", "pooled_dense",
      {{"units", made.width()}, {"activation", "tanh"}, {"kernel_initializer", initializer}}, {first});
  json read = made.Config({pooled, x});
  const json ends = read["output_layers"];
  read["output_layers"] = {{"pooled_output", ends[0]}, {"sequence_output", ends[1]}};
  return read;
}

absl::StatusOr<json> ExpandLlamaBackbone(const json& fields) {
  ConfigReader config(fields);
  Backbone made(config);
  const json epsilon = config.Number("layer_norm_epsilon", 1e-6);
  json layer = {{"num_query_heads", config.PositiveInt("num_query_heads")},
                {"num_key_value_heads", config.PositiveInt("num_key_value_heads")},
                {"layer_norm_epsilon", epsilon},
                {"activation", "silu"},
                {"kernel_initializer", NormalInitializer(0.02)}};
  CopyRotaryOptions(config, layer);
  const bool tied = config.Bool("tie_word_embeddings", false);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string mask = made.Ids("padding_mask"), ids = made.Ids("token_ids");
  std::string x = made.Tokens(ids, NormalInitializer(0.01), tied);
  x = made.Stack("LlamaTransformerDecoder", x, std::move(layer), {{"decoder_padding_mask", mask}});
  return made.Config(
      {made.graph.Add("LlamaLayerNorm", "sequence_output_layernorm", {{"epsilon", epsilon}}, {x})});
}

}  // namespace cairn::nn

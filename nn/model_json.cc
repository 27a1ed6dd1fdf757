// Model::FromJson: Keras' JSON of versions 2 and 3, and a short form for files written by hand.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "nn/layer/config_reader.h"
#include "nn/layers/input_layer.h"
#include "nn/model.h"
#include "nn/model_builder.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Keras 2.0 wrote the list of layers instead of a Sequential's config.
json ConfigOf(const json& document) {
  json config = document.value("config", json());
  return config.is_array() ? json{{"layers", std::move(config)}} : config;
}

absl::Status ReadSequential(const json& config, absl::Span<const int64_t> lines, ModelBuilder& builder) {
  ConfigReader reader(config);
  builder.SetName(reader.String("name", "sequential"), /*functional=*/false);
  reader.Refuse("trainable", true);
  CheckDtype("dtype", reader);
  const json& layers = reader.Raw("layers");
  if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
  const bool built = !reader.Raw("build_input_shape").is_null();
  const Shape built_for = built ? ReadBatchShape("build_input_shape", reader) : Shape();
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");

  CAIRN_RETURN_IF_ERROR(builder.CollectNames(layers));
  int value = Node::OfModelInput(0);
  for (size_t position = 0; position < layers.size(); ++position) {
    CAIRN_ASSIGN_OR_RETURN(
        const ReadLayer layer,
        builder.Read(layers[position], position, position < lines.size() ? lines[position] : 0));
    if (position == 0) {
      if (!layer.has_input_shape && !built) {
        return absl::InvalidArgumentError(
            absl::StrCat(layer.where, ": batch_shape: required, such as [null,28,28,1]"));
      }
      const Shape& input = layer.has_input_shape ? layer.input_shape : built_for;
      if (built && built_for != input) {
        return absl::InvalidArgumentError(absl::StrCat("config: build_input_shape ", built_for.ToString(),
                                                       " is not the first layer's ", input.ToString()));
      }
      builder.AddInput(layer, input);
    }
    if (layer.layer == nullptr) {
      if (position == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(layer.where, ": an InputLayer is only supported as the first layer"));
    }
    CAIRN_ASSIGN_OR_RETURN(value, builder.AddNode(layer, {value}));
  }
  return absl::OkStatus();
}

// The canonical document omits devices: they do not change what a layer computes.
std::string WithoutDevices(json document) {
  json& config = document["config"];
  json& layers = config.is_array() ? config : config["layers"];
  for (json& layer : layers) {
    layer.erase("device");
    if (layer.contains("config") && layer["config"].is_object()) layer["config"].erase("device");
  }
  return document.dump();
}

absl::StatusOr<Model> Read(const json& document, absl::string_view text) {
  if (!document.is_object()) return absl::InvalidArgumentError("expected an object");
  ConfigReader reader(document);
  const std::string class_name = reader.String("class_name", "Sequential");
  const bool functional = class_name == "Functional" || class_name == "Model";
  if (!functional && class_name != "Sequential") {
    reader.Fail("class_name",
                absl::StrCat("'", class_name, "' models are not supported, only Sequential and Functional"));
  }
  reader.Ignore(
      {"module", "registered_name", "keras_version", "backend", "build_config", "compile_config", "config"});
  CAIRN_RETURN_IF_ERROR(reader.Finish());

  const json config = ConfigOf(document);
  std::vector<int64_t> lines;  // [layer]
  for (const auto& [pointer, line] : LinesOfElements(text)) {
    for (absl::string_view prefix : {"/config/layers/", "/config/"}) {
      size_t position = 0;
      const absl::string_view rest =
          absl::string_view(pointer).substr(std::min(prefix.size(), pointer.size()));
      if (!absl::StartsWith(pointer, prefix) || !absl::SimpleAtoi(rest, &position)) continue;
      lines.resize(std::max(lines.size(), position + 1));
      lines[position] = line;
    }
  }
  ModelBuilder builder;
  CAIRN_RETURN_IF_ERROR(functional ? ReadFunctional(config, lines, builder)
                                   : ReadSequential(config, lines, builder));
  if (builder.empty()) {
    return absl::InvalidArgumentError(
        "config: layers: the list has only an InputLayer and layers that make ids of it");
  }
  CAIRN_RETURN_IF_ERROR(builder.FinishInputs());
  auto compiled = ParseCompileConfig(document.value("compile_config", json()));
  if (!compiled.ok()) return Annotate(compiled.status(), "compile_config");
  return builder.Finish(*std::move(compiled), WithoutDevices(document));
}

}  // namespace

absl::StatusOr<Model> Model::FromJson(absl::string_view text, absl::string_view source) {
  CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text, source));
  auto model = Read(document, text);
  if (!model.ok()) return Annotate(model.status(), source);
  return model;
}

}  // namespace cairn::nn

// Model::FromJson: Keras' JSON of versions 2 and 3, and a short form for files written by hand.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "nn/hub/keras_hub.h"
#include "nn/input_sizes.h"
#include "nn/layer/config_reader.h"
#include "nn/model.h"
#include "nn/model_builder.h"
#include "nn/model_graph.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The canonical document omits devices: they do not change what a layer computes.
void EraseDevices(json& model) {
  json& config = model["config"];
  json& layers = config.is_array() ? config : config["layers"];
  for (json& layer : layers) {
    if (!layer.is_object()) continue;
    layer.erase("device");
    if (!layer.contains("config")) continue;
    if (layer["config"].is_object()) layer["config"].erase("device");
    if (layer["config"].is_array() || layer["config"].contains("layers")) EraseDevices(layer);
  }
}

absl::StatusOr<Model> Read(const json& document, absl::string_view text) {
  if (!document.is_object()) return absl::InvalidArgumentError("expected an object");
  ConfigReader reader(document);
  const std::string class_name = reader.String("class_name", "Sequential");
  const bool functional = class_name == "Functional" || class_name == "Model" || IsHubModel(class_name);
  if (!functional && class_name != "Sequential") {
    reader.Fail("class_name",
                absl::StrCat("'", class_name,
                             "' models are not supported, only Sequential and Functional, and of "
                             "keras_hub ",
                             HubModels()));
  }
  reader.Ignore(
      {"module", "registered_name", "keras_version", "backend", "build_config", "compile_config", "config"});
  CAIRN_RETURN_IF_ERROR(reader.Finish());

  const auto lines = LinesOfElements(text);
  ModelBuilder builder;
  CAIRN_ASSIGN_OR_RETURN(const ModelGraph graph, ReadModelGraph(document, {.lines = lines}, builder));
  CAIRN_RETURN_IF_ERROR(AddModel(graph, builder));
  CAIRN_RETURN_IF_ERROR(builder.FinishInputs());
  auto compiled = ParseCompileConfig(document.value("compile_config", json()));
  if (!compiled.ok()) return Annotate(compiled.status(), "compile_config");
  json canonical = document;
  EraseDevices(canonical);
  return builder.Finish(*std::move(compiled), canonical.dump());
}

}  // namespace

absl::StatusOr<Model> Model::FromJson(absl::string_view text, absl::string_view source,
                                      const InputSizes& sizes) {
  const std::string finite = WithFiniteNumbers(text);
  CAIRN_ASSIGN_OR_RETURN(json document, ParseJson(finite, source));
  if (const auto status = ExpandHubModel(document); !status.ok()) {
    return Annotate(status, absl::StrCat(source, ": ", document["class_name"].get<std::string>()));
  }
  if (const auto status = SetInputSizes(sizes, document); !status.ok()) return Annotate(status, source);
  auto model = Read(document, finite);
  if (!model.ok()) return Annotate(model.status(), source);
  return model;
}

}  // namespace cairn::nn

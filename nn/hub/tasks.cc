#include "nn/hub/tasks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "nn/hub/hub_graph.h"
#include "nn/hub/keras_hub.h"
#include "nn/hub/reverse_calls.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// A graph with the inputs of a backbone, and a call of it.
struct Task {
  std::string name;
  json backbone{};  // expanded
  std::string call{};
  HubGraph graph{};

  // The layer of the backbone with this name.
  const json& LayerOf(absl::string_view layer) const {
    for (const json& entry : backbone["config"]["layers"]) {
      if (entry["config"]["name"] == std::string(layer)) return entry;
    }
    return backbone;
  }
};

// Reads the fields that all tasks have.
absl::StatusOr<Task> ReadTask(ConfigReader& config) {
  Task task = {.name = config.String("name", ""), .backbone = config.Raw("backbone")};
  // The preprocessor turns text into ids, which are the inputs of the network.
  config.Ignore({"preprocessor", "trainable", "dtype"});
  const json class_name = task.backbone.is_object() ? task.backbone.value("class_name", json()) : json();
  if (!class_name.is_string() || !absl::EndsWith(class_name.get<std::string>(), "Backbone")) {
    config.Fail("backbone", absl::StrCat("required, a backbone of keras_hub, not ", class_name.dump()));
    return config.status();
  }
  CAIRN_RETURN_IF_ERROR(Annotate(ExpandHubModel(task.backbone), "backbone"));
  json tensors = json::array();
  for (const json& input : task.backbone["config"]["input_layers"])
    tensors.push_back(task.graph.Input(input[0].get<std::string>(), 2, "int32"));
  task.call = task.graph.AddRead(task.backbone, std::move(tensors));
  return task;
}

}  // namespace

absl::StatusOr<json> ExpandCausalLm(const json& fields) {
  ConfigReader config(fields);
  CAIRN_ASSIGN_OR_RETURN(Task task, ReadTask(config));
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string embedding = "token_embedding";
  const std::string logits =
      task.graph.Add("ReverseEmbedding", ReverseLayerOf(absl::StrCat(task.call, "/", embedding)),
                     task.LayerOf(embedding)["config"], {task.call});
  return task.graph.Config(task.name, {logits});
}

absl::StatusOr<json> ExpandBertTextClassifier(const json& fields) {
  ConfigReader config(fields);
  CAIRN_ASSIGN_OR_RETURN(Task task, ReadTask(config));
  const json activation = config.Raw("activation");
  json logits = {{"units", config.PositiveInt("num_classes")},
                 {"activation", activation.is_null() ? json("linear") : activation},
                 {"kernel_initializer", task.LayerOf("pooled_dense")["config"]["kernel_initializer"]}};
  const double dropout = config.Number("dropout", 0.1);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string pooled =
      task.graph.Add("Dropout", "classifier_dropout", {{"rate", dropout}}, {task.call});
  return task.graph.Config(task.name, {task.graph.Add("Dense", "logits", std::move(logits), {pooled})});
}

}  // namespace cairn::nn

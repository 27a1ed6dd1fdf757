#include "nn/hub/tasks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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

  // The config of the backbone's layer with this name, which it has.
  json ConfigOf(absl::string_view layer) const {
    for (const json& entry : backbone["config"]["layers"]) {
      if (entry["config"]["name"] == std::string(layer)) return entry["config"];
    }
    return json::object();
  }
};

// Reads the fields that all tasks have. `backbones`: the classes that the task may be for.
absl::StatusOr<Task> ReadTask(ConfigReader& config, absl::Span<const absl::string_view> backbones) {
  Task task = {.name = config.String("name", ""), .backbone = config.Raw("backbone")};
  // The preprocessor turns text into ids, which are the inputs of the network.
  config.Ignore({"preprocessor", "trainable", "dtype"});
  const json class_name = task.backbone.is_object() ? task.backbone.value("class_name", json()) : json();
  const json of_backbone = task.backbone.is_object() ? task.backbone.value("config", json()) : json();
  if (!class_name.is_string() || !absl::c_linear_search(backbones, class_name.get<std::string>())) {
    config.Fail("backbone",
                absl::StrCat("expected ", absl::StrJoin(backbones, " or "), ", got ", class_name.dump()));
    return config.status();
  }
  if (!of_backbone.is_object() || of_backbone.contains("layers")) {
    config.Fail("backbone", "expected the sizes that keras_hub writes as its config");
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
  CAIRN_ASSIGN_OR_RETURN(Task task, ReadTask(config, {"GPT2Backbone", "LlamaBackbone"}));
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string embedding = "token_embedding";
  const std::string logits =
      task.graph.Add("ReverseEmbedding", ReverseLayerOf(absl::StrCat(task.call, "/", embedding)),
                     task.ConfigOf(embedding), {task.call});
  return task.graph.Config(task.name, {logits});
}

absl::StatusOr<json> ExpandBertTextClassifier(const json& fields) {
  ConfigReader config(fields);
  CAIRN_ASSIGN_OR_RETURN(Task task, ReadTask(config, {"BertBackbone"}));
  const json activation = config.Raw("activation");
  json logits = {{"units", config.PositiveInt("num_classes")},
                 {"activation", activation.is_null() ? json("linear") : activation},
                 {"kernel_initializer", task.ConfigOf("pooled_dense").value("kernel_initializer", json())}};
  const double dropout = config.Number("dropout", 0.1);
  CAIRN_RETURN_IF_ERROR(config.Finish());
  const std::string pooled =
      task.graph.Add("Dropout", "classifier_dropout", {{"rate", dropout}}, {task.call});
  return task.graph.Config(task.name, {task.graph.Add("Dense", "logits", std::move(logits), {pooled})});
}

}  // namespace cairn::nn

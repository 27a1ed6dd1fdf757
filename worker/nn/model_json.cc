// Model::FromJson: Keras' JSON of versions 2 and 3, and the short form that people write by hand.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "worker/nn/config_reader.h"
#include "worker/nn/layer_registry.h"
#include "worker/nn/layers/input_layer.h"
#include "worker/nn/model.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// What a worker can hold twice, as values and as gradients, on a large machine.
constexpr int64_t kMostParameters = int64_t{1} << 32;

// Keras' to_snake_case: Conv2D conv2d, MaxPooling2D max_pooling2d.
std::string SnakeCase(absl::string_view class_name) {
  std::string name;
  for (size_t i = 0; i < class_name.size(); ++i) {
    const char c = class_name[i];
    const bool starts_word = i > 0 && absl::ascii_isupper(c) &&
                             (absl::ascii_islower(class_name[i - 1]) ||
                              (i + 1 < class_name.size() && absl::ascii_islower(class_name[i + 1])));
    if (starts_word) name += '_';
    name += absl::ascii_tolower(c);
  }
  return name;
}

// float32 as a string, or as the policy objects of Keras 2 ("Policy") and 3 ("DTypePolicy").
void CheckDtype(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  const json& name = value.is_object() && value.contains("config") && value["config"].is_object() &&
                             value["config"].contains("name")
                         ? value["config"]["name"]
                         : value;
  if (!name.is_null() && name != "float32") {
    config.Fail(field, absl::StrCat(name.dump(), " is not supported, only \"float32\""));
  }
}

}  // namespace

// Adds layer after layer to a model. Errors name the layer; the source is added by FromJson.
class ModelBuilder {
 public:
  absl::StatusOr<Model> Build(const json& document) {
    CAIRN_RETURN_IF_ERROR(ReadTop(document));
    CAIRN_RETURN_IF_ERROR(ReadSequential(SequentialConfig(document)));
    const json compile = document.value("compile_config", json());
    auto compiled = ParseCompileConfig(compile);
    if (!compiled.ok()) return Annotate(compiled.status(), "compile_config");
    model_.compile_config_ = *std::move(compiled);
    model_.canonical_json_ = document.dump();
    return std::move(model_);
  }

 private:
  static absl::Status ReadTop(const json& document) {
    if (!document.is_object()) return absl::InvalidArgumentError("expected an object");
    ConfigReader reader(document);
    const std::string class_name = reader.String("class_name", "Sequential");
    if (class_name != "Sequential") {
      reader.Fail("class_name",
                  absl::StrCat("'", class_name, "' models are not supported yet, only Sequential"));
    }
    reader.Ignore({"module", "registered_name", "keras_version", "backend", "build_config", "compile_config",
                   "config"});
    return reader.Finish();
  }

  // Keras 2.0 wrote the list of layers in place of the config.
  static json SequentialConfig(const json& document) {
    json config = document.value("config", json());
    return config.is_array() ? json{{"layers", std::move(config)}} : config;
  }

  absl::Status ReadSequential(const json& config) {
    ConfigReader reader(config);
    model_.name_ = reader.String("name", "sequential");
    reader.Refuse("trainable", true);
    CheckDtype("dtype", reader);
    const json& layers = reader.Raw("layers");
    if (!layers.is_array() || layers.empty()) reader.Fail("layers", "required, a list of layers");
    const bool built = !reader.Raw("build_input_shape").is_null();
    const Shape built_for = built ? ReadBatchShape("build_input_shape", reader) : Shape();
    if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, "config");

    CAIRN_RETURN_IF_ERROR(CollectNames(layers));
    for (size_t index = 0; index < layers.size(); ++index) {
      CAIRN_RETURN_IF_ERROR(ReadLayer(layers[index], index, built ? &built_for : nullptr));
    }
    if (model_.nodes_.empty())
      return absl::InvalidArgumentError("config: layers: there is only an InputLayer");
    if (built && built_for != model_.input_shape_) {
      return absl::InvalidArgumentError(absl::StrCat("config: build_input_shape ", built_for.ToString(),
                                                     " is not the first layer's ",
                                                     model_.input_shape_.ToString()));
    }
    return absl::OkStatus();
  }

  // The names that the file gives; automatic ones keep clear of them.
  absl::Status CollectNames(const json& layers) {
    for (const json& layer : layers) {
      if (!layer.is_object()) return absl::InvalidArgumentError("config: layers: expected objects");
      const json config = layer.value("config", json());
      if (!config.is_object() || !config.contains("name") || !config["name"].is_string()) continue;
      const std::string name = config["name"].get<std::string>();
      if (!names_.insert(name).second) {
        return absl::InvalidArgumentError(absl::StrCat("two layers are named '", name, "'"));
      }
    }
    return absl::OkStatus();
  }

  // Keras' automatic names: conv2d, conv2d_1, ...
  std::string UniqueName(absl::string_view class_name) {
    const std::string base = SnakeCase(class_name);
    std::string name = base;
    for (int suffix = 1; !names_.insert(name).second; ++suffix) name = absl::StrCat(base, "_", suffix);
    return name;
  }

  absl::Status ReadLayer(const json& layer, size_t index, const Shape* built_for) {
    ConfigReader outer(layer);
    const std::string class_name = outer.String("class_name", "");
    if (class_name.empty()) outer.Fail("class_name", "required");
    outer.Ignore({"module", "registered_name", "build_config", "config"});
    if (const auto status = outer.Finish(); !status.ok()) {
      return Annotate(status, absl::StrCat("layer ", index));
    }

    const json& config = layer.contains("config") ? layer["config"] : null_;
    ConfigReader reader(config);
    std::string name = reader.String("name", "");
    const std::string shown = name.empty() ? absl::StrCat(index) : absl::StrCat("'", name, "'");
    const std::string where = absl::StrCat("layer ", shown, " (", class_name, ")");
    if (config.is_object() && config.contains("name") && config["name"].is_string() &&
        (name.empty() || absl::StrContains(name, "/"))) {
      reader.Fail("name", "must be neither empty nor contain '/'");
    }
    const LayerMaker make = FindLayer(class_name);
    if (make == nullptr && class_name != "InputLayer") {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": unknown layer; supported: ", SupportedLayers()));
    }
    CheckDtype("dtype", reader);
    if (class_name == "InputLayer") {
      if (index != 0) reader.Fail("class_name", "an InputLayer is only supported as the first layer");
      model_.input_shape_ = ReadInputLayer(reader);
      return Annotate(reader.Finish(), where);
    }
    // Frozen layers would change what is trained.
    reader.Refuse("trainable", true);
    if (index == 0) ReadFirstShape(built_for, reader);
    if (name.empty()) name = UniqueName(class_name);
    std::unique_ptr<Layer> made = make(std::move(name), reader);
    if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, where);
    return Annotate(Append(std::move(made)), where);
  }

  // The input's shape where no InputLayer gives it.
  void ReadFirstShape(const Shape* built_for, ConfigReader& reader) {
    if (HasInputShape(reader) || built_for == nullptr) {
      model_.input_shape_ = ReadInputShape(reader);
    } else {
      model_.input_shape_ = *built_for;
    }
  }

  absl::Status Append(std::unique_ptr<Layer> layer) {
    const int previous = static_cast<int>(model_.nodes_.size()) - 1;
    const Shape input = previous < 0 ? model_.input_shape_ : model_.nodes_.back().output_shape;
    CAIRN_ASSIGN_OR_RETURN(const Shape output, layer->OutputShape({input}));
    Node node;
    CAIRN_ASSIGN_OR_RETURN(node.output_shape, Shape::FromUntrusted(output.dims()));
    node.inputs = {previous < 0 ? Node::kModelInput : previous};
    for (VariableSpec& variable : layer->Variables({input})) {
      CAIRN_ASSIGN_OR_RETURN(const Shape shape, Shape::FromUntrusted(variable.shape.dims()));
      if (shape.num_elements() > kMostParameters - model_.num_parameters_) {
        return absl::InvalidArgumentError(
            absl::StrCat(variable.name, " ", shape.ToString(), " makes more than 2^32 parameters"));
      }
      CAIRN_RETURN_IF_ERROR(Annotate(CheckShape(variable.initializer, shape), variable.name));
      node.variables.push_back(static_cast<int>(model_.variables_.size()));
      model_.variables_.push_back({.name = absl::StrCat(layer->name(), "/", variable.name),
                                   .shape = shape,
                                   .initializer = variable.initializer,
                                   .offset = model_.num_parameters_});
      model_.num_parameters_ += shape.num_elements();
    }
    node.layer = std::move(layer);
    model_.nodes_.push_back(std::move(node));
    return absl::OkStatus();
  }

  const json null_;
  Model model_;
  std::set<std::string> names_;
};

absl::StatusOr<Model> Model::FromJson(absl::string_view text, absl::string_view source) {
  CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text, source));
  auto model = ModelBuilder().Build(document);
  if (!model.ok()) return Annotate(model.status(), source);
  return model;
}

}  // namespace cairn::nn

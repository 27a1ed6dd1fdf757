#include "nn/layer_reader.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/hub/keras_hub.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/dtype_policy.h"
#include "nn/layer/keras_class.h"
#include "nn/layer/regularizer.h"
#include "nn/layers/activity_regularization.h"
#include "nn/layers/id_layer.h"
#include "nn/layers/layer_registry.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

std::string ReadableLayers() {
  return absl::StrCat(SupportedLayers(), ", ", HubLayers());
}

// Returns an error if an entry of a file's `layers` cannot be read.
absl::Status CheckClass(const json& layer, const std::string& class_name) {
  if (class_name == "Lambda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "runs Python code, which is not supported: replace it by layers; supported: ", ReadableLayers()));
  }
  CAIRN_RETURN_IF_ERROR(CheckIsOfKeras(layer));
  if (IsKerasFunction(layer)) {
    if (IsSupportedFunction(class_name)) return absl::OkStatus();
    return absl::InvalidArgumentError(FunctionFault(class_name));
  }
  if (class_name != "InputLayer" && FindLayer(class_name) == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("unknown layer; supported: ", ReadableLayers()));
  return absl::OkStatus();
}

void CheckIdDtype(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  const json policy = value.is_object() ? value.value("config", json()) : json();
  const json name = policy.is_object() ? policy.value("name", json()) : value;
  if (name == "int64" || name == "int32" || name == "string") return;
  CheckDtype(field, config);
}

// Whether the layer has Keras 2's batch_input_shape of an Embedding without input_length, which says nothing.
bool HasOpenShape(ConfigReader& config) {
  return config.Raw("batch_input_shape") == json::array({nullptr, nullptr});
}

// The dtype of an InputLayer, which may also be an integer type.
DType ReadInputDtype(absl::string_view field, ConfigReader& config) {
  const json& name = config.Raw(field);
  for (const DType type : {DType::kInt32, DType::kInt64, DType::kUint8, DType::kBool}) {
    if (name == std::string(NameOf(type))) return type;
  }
  CheckDtype(field, config);
  return DType::kFloat32;
}

// Reads the fields of an InputLayer into `read`.
void ReadInput(const LayerScope& scope, ConfigReader& reader, ReadLayer& read) {
  read.text = reader.Raw("dtype") == "string";
  read.input_type = read.text ? DType::kInt64 : ReadInputDtype("dtype", reader);
  read.ragged = reader.Bool("ragged", false);
  read.input_shape = read.ragged ? ReadRaggedInputLayer(reader) : ReadInputLayer(scope.nested(), reader);
  read.has_input_shape = true;
}

// Reads the fields of another layer into `read`, which has its name.
void ReadAnyLayer(const std::string& class_name, const LayerScope& scope, ConfigReader& reader,
                  ReadLayer& read) {
  if (ComputesIds(class_name)) {
    CheckIdDtype("dtype", reader);
    reader.Ignore({"batch_input_shape"});  // of the data that adapt() has seen
    reader.RefuseUnlessNull({"activity_regularizer"});
  } else {
    CheckDtype("dtype", reader);
    read.has_input_shape = HasInputShape(reader) && !HasOpenShape(reader);
  }
  read.trainable = reader.Bool("trainable", scope.trainable);
  if (read.has_input_shape) read.input_shape = ReadInputShape(scope.nested(), reader);
  const RegularizerSpec activity = reader.Regularizer("activity_regularizer");
  if (activity.orthogonal != 0)
    reader.Fail("activity_regularizer", "OrthogonalRegularizer is only supported for variables");
  if (activity.l1 != 0 || activity.l2 != 0) read.activity = MakeActivityPenalty(read.name, activity);
  read.layer = FindLayer(class_name)(read.name, reader);
}

}  // namespace

absl::Status LayerReader::CollectNames(const json& layers, absl::string_view prefix) {
  for (const json& layer : layers) {
    if (!layer.is_object()) return absl::InvalidArgumentError("config: layers: expected objects");
    const json config = layer.value("config", json());
    if (!config.is_object() || !config.contains("name") || !config["name"].is_string()) continue;
    const std::string name = absl::StrCat(prefix, config["name"].get<std::string>());
    if (!names_.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two layers are named '", name, "'"));
    }
  }
  return absl::OkStatus();
}

std::string LayerReader::UniqueName(absl::string_view class_name, absl::string_view prefix) {
  const std::string base = absl::StrCat(prefix, SnakeCase(class_name));
  int& suffix = suffixes_[base];
  std::string name = suffix == 0 ? base : absl::StrCat(base, "_", suffix);
  while (!names_.insert(name).second) name = absl::StrCat(base, "_", ++suffix);
  return name.substr(prefix.size());
}

absl::StatusOr<ReadLayer> LayerReader::Read(const json& layer, size_t position, int64_t line,
                                            const LayerScope& scope) {
  const std::string at = line > 0 ? absl::StrCat(", line ", line) : "";
  ConfigReader outer(layer);
  const std::string class_name = outer.String("class_name", "");
  if (class_name.empty()) outer.Fail("class_name", "required");
  const std::string device = outer.String("device", scope.device);
  outer.Ignore(
      {"module", "registered_name", "build_config", "compile_config", "config", "name", "inbound_nodes"});
  if (const auto status = outer.Finish(); !status.ok()) {
    return Annotate(status, absl::StrCat("layer ", position, at));
  }

  const json none;
  const json& written = layer.contains("config") ? layer["config"] : none;
  // The layer itself reads the field, too: Keras writes it into the layers of a model that is frozen as a whole.
  json frozen;
  const bool freezes = !scope.trainable && class_name != "InputLayer" && written.is_object();
  if (freezes) (frozen = written).emplace("trainable", false);
  const json& config = freezes ? frozen : written;
  ConfigReader reader(config);
  ReadLayer read;
  read.local_name = reader.String("name", "");
  const std::string shown = read.local_name.empty() ? absl::StrCat(scope.prefix, position)
                                                    : absl::StrCat("'", scope.prefix, read.local_name, "'");
  read.where = absl::StrCat("layer ", shown, " (", class_name, ")", at);
  read.device = reader.String("device", device);
  if (config.is_object() && config.contains("name") && config["name"].is_string() && read.local_name.empty())
    reader.Fail("name", "must not be empty");
  if (const auto status = CheckClass(layer, class_name); !status.ok()) return Annotate(status, read.where);
  if (read.local_name.empty()) read.local_name = UniqueName(class_name, scope.prefix);
  read.name = absl::StrCat(scope.prefix, read.local_name);
  if (class_name == "InputLayer") {
    ReadInput(scope, reader, read);
  } else if (IsKerasFunction(layer)) {
    if (!ReadsDtype(class_name)) CheckDtype("dtype", reader);
    read.function = ReadFunction(read.name, class_name, reader);
  } else {
    ReadAnyLayer(class_name, scope, reader, read);
  }
  if (const auto status = reader.Finish(); !status.ok()) return Annotate(status, read.where);
  return read;
}

}  // namespace cairn::nn

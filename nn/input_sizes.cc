#include "nn/input_sizes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// A field of the document with the shape of an input.
struct ShapeField {
  std::string input;
  json* shape;
  size_t batch_axes;  // 1 if the shape begins with the batch, otherwise 0

  bool has_open_length() const { return shape->size() > batch_axes && IsNull((*shape)[batch_axes]); }
  bool open() const { return std::any_of(shape->begin() + begin(), shape->end(), IsNull); }
  std::ptrdiff_t begin() const { return static_cast<std::ptrdiff_t>(batch_axes); }
  static bool IsNull(const json& size) { return size.is_null(); }
};

void AddField(const std::string& input, const char* name, size_t batch_axes, json& config,
              std::vector<ShapeField>& fields) {
  if (!config.contains(name) || !config[name].is_array() || config[name].size() < batch_axes) return;
  fields.push_back({input, &config[name], batch_axes});
}

// The shapes of the inputs. Those of a Sequential may be in the first layer, and once more in its own config.
std::vector<ShapeField> FieldsOf(json& model) {
  std::vector<ShapeField> fields;
  if (!model.is_object() || !model.contains("config")) return fields;
  json& config = model["config"];
  const bool sequential = model.value("class_name", json("Sequential")) == "Sequential";
  if (!config.is_array() && !(config.is_object() && config.contains("layers"))) return fields;
  json& layers = config.is_array() ? config : config["layers"];
  if (!layers.is_array()) return fields;
  for (json& layer : layers) {
    const bool is_input = layer.is_object() && layer.value("class_name", json()) == "InputLayer";
    const bool first = sequential && &layer == &layers.front();
    if (!layer.is_object() || !layer.contains("config") || !layer["config"].is_object()) continue;
    json& of_layer = layer["config"];
    if ((!is_input && !first) || of_layer.value("ragged", json()) == true) continue;
    const json name = of_layer.value("name", json());
    const std::string input = name.is_string() ? name.get<std::string>() : "";
    for (const char* field : {"batch_shape", "batch_input_shape"})
      AddField(input, field, 1, of_layer, fields);
    for (const char* field : {"shape", "input_shape"}) AddField(input, field, 0, of_layer, fields);
    if (first && config.is_object()) AddField(input, "build_input_shape", 1, config, fields);
  }
  return fields;
}

std::vector<std::string> InputsOf(const std::vector<ShapeField>& fields) {
  std::vector<std::string> inputs;
  for (const ShapeField& field : fields) {
    if (std::find(inputs.begin(), inputs.end(), field.input) == inputs.end()) inputs.push_back(field.input);
  }
  return inputs;
}

absl::Status CheckNames(const InputSizes& sizes, const std::vector<std::string>& inputs) {
  for (const auto& [name, shape] : sizes.given) {
    if (name.empty() ? inputs.size() == 1 : std::find(inputs.begin(), inputs.end(), name) != inputs.end())
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--input_shape: ", name.empty() ? "needs the names of inputs" : absl::StrCat("no input '", name, "'"),
        ": the model has ", inputs.empty() ? "none whose shape is in the file" : absl::StrJoin(inputs, ", "),
        inputs.size() > 1 ? ", as in image:224,224,3,mask:224,224,1" : ""));
  }
  return absl::OkStatus();
}

// Sets the sizes of `field` to `shape`, which `source` gives.
absl::Status SetShape(const std::vector<int64_t>& shape, absl::string_view source, ShapeField& field) {
  bool fits = field.shape->size() == shape.size() + field.batch_axes;
  for (size_t axis = 0; axis < shape.size() && fits; ++axis) {
    const json& known = (*field.shape)[axis + field.batch_axes];
    fits = known.is_null() || known == shape[axis];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": examples of shape [", absl::StrJoin(shape, ","), "] do not fit input '",
                     field.input, "', which is ",
                     json(json::array_t(field.shape->begin() + field.begin(), field.shape->end())).dump()));
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) (*field.shape)[axis + field.batch_axes] = shape[axis];
  return absl::OkStatus();
}

void Cut(json& size, int64_t max_length) {
  if (size.is_number_integer() && size > max_length) size = max_length;
}

// Cuts the ids that layers of the model make of texts.
void CutTexts(json& model, int64_t max_length) {
  if (!model.is_object() || !model.contains("config")) return;
  json& config = model["config"];
  json& layers = config.is_object() && config.contains("layers") ? config["layers"] : config;
  if (!layers.is_array()) return;
  for (json& layer : layers) {
    if (!layer.is_object() || layer.value("class_name", json()) != "TextVectorization") continue;
    if (!layer.contains("config") || !layer["config"].is_object()) continue;
    json& of_layer = layer["config"];
    if (of_layer.contains("output_sequence_length")) Cut(of_layer["output_sequence_length"], max_length);
  }
}

// The shape of examples in the data for an input of `axes` axes. The last may be missing in gray images.
std::vector<int64_t> WithChannel(const Shape& in_data, size_t axes) {
  std::vector<int64_t> shape(in_data.dims().begin(), in_data.dims().end());
  if (shape.size() + 1 == axes && axes > 1) shape.push_back(1);
  return shape;
}

}  // namespace

absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseInputSizes(absl::string_view text) {
  std::map<std::string, std::vector<int64_t>> inputs;
  std::string name;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (const size_t colon = part.rfind(':'); colon != absl::string_view::npos) {
      name = std::string(part.substr(0, colon));
      part.remove_prefix(colon + 1);
      if (name.empty() || inputs.count(name) > 0)
        return absl::InvalidArgumentError(
            absl::StrCat("input '", name, "' has ", name.empty() ? "no name" : "two shapes"));
    }
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > (int64_t{1} << 31)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not a positive size, as in 224,224,3 or image:224,224,3"));
    }
    inputs[name].push_back(size);
  }
  if (inputs.size() > 1 && inputs.count("") > 0)
    return absl::InvalidArgumentError("the first shape has no name, as in image:224,224,3,mask:224,224,1");
  return inputs;
}

absl::Status SetInputSizes(const InputSizes& sizes, json& model) {
  std::vector<ShapeField> fields = FieldsOf(model);
  const std::vector<std::string> inputs = InputsOf(fields);
  CAIRN_RETURN_IF_ERROR(CheckNames(sizes, inputs));
  std::optional<absl::StatusOr<Shape>> in_data;
  for (ShapeField& field : fields) {
    const bool cut = sizes.max_length > 0 && field.has_open_length();
    auto given = sizes.given.find(field.input);
    if (given == sizes.given.end()) given = sizes.given.find("");
    if (given != sizes.given.end()) {
      CAIRN_RETURN_IF_ERROR(SetShape(given->second, "--input_shape", field));
    } else if (field.open() && inputs.size() == 1 && sizes.in_data) {
      if (!in_data.has_value()) in_data = sizes.in_data();
      if (!in_data->ok()) {
        return Annotate(in_data->status(), absl::StrCat("input '", field.input,
                                                        "' is of any size, which --input_shape "
                                                        "can fix, and the data does not"));
      }
      CAIRN_RETURN_IF_ERROR(
          SetShape(WithChannel(**in_data, field.shape->size() - field.batch_axes), sizes.data_source, field));
    }
    if (cut) Cut((*field.shape)[field.batch_axes], sizes.max_length);
  }
  if (sizes.max_length > 0) CutTexts(model, sizes.max_length);
  return absl::OkStatus();
}

}  // namespace cairn::nn

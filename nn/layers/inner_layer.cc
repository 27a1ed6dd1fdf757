#include "nn/layers/inner_layer.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "nn/layer/dtype_policy.h"
#include "nn/layer/keras_class.h"

namespace cairn::nn {

using nlohmann::json;

std::unique_ptr<Layer> ReadInnerLayer(absl::string_view field, ConfigReader& outer,
                                      InnerLayerMaker (*find)(absl::string_view class_name)) {
  const json& value = outer.Raw(field);
  const json class_name = value.is_object() ? value.value("class_name", json()) : json();
  const InnerLayerMaker make = class_name.is_string() ? find(class_name.get<std::string>()) : nullptr;
  if (make == nullptr) {
    outer.Fail(field, value.is_null()
                          ? "required"
                          : absl::StrCat(class_name.dump(), " is not a supported layer within another"));
    return nullptr;
  }
  if (const absl::Status own = CheckIsOfKeras(value); !own.ok()) {
    outer.Fail(field, own.message());
    return nullptr;
  }
  const json config = value.value("config", json::object());
  ConfigReader reader(config);
  const std::string name = reader.String("name", SnakeCase(class_name.get<std::string>()));
  // Keras sets `trainable` of the inner layer when it is set of the outer one.
  if (!reader.Bool("trainable", true) && outer.Bool("trainable", true))
    reader.Fail("trainable", "false is only supported for the layer as a whole");
  CheckDtype("dtype", reader);
  reader.RefuseUnlessNull({"activity_regularizer"});
  reader.Ignore({"batch_input_shape", "input_shape"});
  std::unique_ptr<Layer> layer = make(name, reader);
  if (const absl::Status status = reader.Finish(); !status.ok()) {
    outer.Fail(field, absl::StrCat("'", name, "' (", class_name.get<std::string>(), "): ", status.message()));
    return nullptr;
  }
  return layer;
}

}  // namespace cairn::nn

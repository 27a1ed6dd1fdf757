#include "nn/layers/input_layer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

Shape ReadShape(absl::string_view field, bool has_batch, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (!value.is_array() || (has_batch && value.empty())) {
    config.Fail(field, absl::StrCat("expected a shape such as ", has_batch ? "[null,28,28,1]" : "[28,28,1]",
                                    ", got ", value.dump()));
    return {};
  }
  std::vector<int64_t> dims;
  for (size_t axis = has_batch ? 1 : 0; axis < value.size(); ++axis) {
    if (!value[axis].is_number_integer() || value[axis] < 1 || value[axis] > (int64_t{1} << 31)) {
      config.Fail(field, absl::StrCat(value.dump(), ": axis ", axis,
                                      " must be a positive integer; sizes that vary are not supported"));
      return {};
    }
    dims.push_back(value[axis].get<int64_t>());
  }
  const auto shape = Shape::FromUntrusted(dims);
  if (shape.ok()) return *shape;
  config.Fail(field, shape.status().message());
  return {};
}

// A field that may give the input shape.
struct Spelling {
  const char* field;
  bool has_batch;
};
// Returns the first spelling whose field is present; null if there is none.
const Spelling* FindSpelling(ConfigReader& config) {
  static constexpr Spelling kSpellings[] = {
      {"batch_shape", true}, {"batch_input_shape", true}, {"input_shape", false}, {"shape", false}};
  const Spelling* found = nullptr;
  for (const Spelling& spelling : kSpellings) {
    if (!config.Raw(spelling.field).is_null() && found == nullptr) found = &spelling;
  }
  return found;
}

}  // namespace

Shape ReadBatchShape(absl::string_view field, ConfigReader& config) {
  return ReadShape(field, true, config);
}

bool HasInputShape(ConfigReader& config) {
  return FindSpelling(config) != nullptr;
}

Shape ReadInputShape(ConfigReader& config) {
  const Spelling* spelling = FindSpelling(config);
  if (spelling == nullptr) {
    config.Fail("batch_shape", "required, such as [null,28,28,1]");
    return {};
  }
  return ReadShape(spelling->field, spelling->has_batch, config);
}

Shape ReadRaggedInputLayer(ConfigReader& config) {
  config.Refuse("sparse", false);
  config.Refuse("optional", false);
  const Spelling* spelling = FindSpelling(config);
  if (spelling == nullptr) {
    config.Fail("batch_shape", "required, such as [null,null]");
    return {};
  }
  const json& shape = config.Raw(spelling->field);
  if (shape != json(json::array_t(spelling->has_batch ? 2 : 1))) {
    config.Fail(spelling->field,
                absl::StrCat(shape.dump(), ": a ragged input has one axis that varies, such as [null,null]"));
  }
  return {1};
}

Shape ReadInputLayer(ConfigReader& config) {
  config.Refuse("sparse", false);
  config.Refuse("optional", false);
  return ReadInputShape(config);
}

}  // namespace cairn::nn

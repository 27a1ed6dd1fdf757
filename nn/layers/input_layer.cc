#include "nn/layers/input_layer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

OpenShape ReadShape(absl::string_view field, bool has_batch, bool open, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (!value.is_array() || (has_batch && value.empty())) {
    config.Fail(field, absl::StrCat("expected a shape such as ", has_batch ? "[null,28,28,1]" : "[28,28,1]",
                                    ", got ", value.dump()));
    return {};
  }
  OpenShape shape;
  std::vector<int64_t> known;
  for (size_t axis = has_batch ? 1 : 0; axis < value.size(); ++axis) {
    if (open && value[axis].is_null()) {
      shape.push_back(std::nullopt);
      continue;
    }
    if (value[axis].is_null()) {
      config.Fail(field,
                  absl::StrCat(value.dump(), ": the size of axis ", axis,
                               " is not fixed: give the shape of an example with --input_shape, such as "
                               "--input_shape 224,224,3"));
      return {};
    }
    if (!value[axis].is_number_integer() || value[axis] < 1 || value[axis] > (int64_t{1} << 31)) {
      config.Fail(field, absl::StrCat(value.dump(), ": axis ", axis, " must be a positive integer"));
      return {};
    }
    known.push_back(value[axis].get<int64_t>());
    shape.push_back(known.back());
  }
  if (const auto bounded = Shape::FromUntrusted(known); !bounded.ok())
    config.Fail(field, bounded.status().message());
  return shape;
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

std::string ToString(const OpenShape& shape) {
  return absl::StrCat("[",
                      absl::StrJoin(shape, ",",
                                    [](std::string* out, std::optional<int64_t> size) {
                                      absl::StrAppend(out, size.has_value() ? absl::StrCat(*size) : "null");
                                    }),
                      "]");
}

Shape ToShape(const OpenShape& shape) {
  Shape known;
  for (const std::optional<int64_t>& size : shape) known.Append(*size);
  return known;
}

bool Fits(const Shape& shape, const OpenShape& open) {
  if (static_cast<size_t>(shape.rank()) != open.size()) return false;
  for (size_t axis = 0; axis < open.size(); ++axis) {
    if (open[axis].has_value() && *open[axis] != shape[static_cast<int>(axis)]) return false;
  }
  return true;
}

OpenShape ReadBatchShape(absl::string_view field, bool open, ConfigReader& config) {
  return ReadShape(field, true, open, config);
}

bool HasInputShape(ConfigReader& config) {
  return FindSpelling(config) != nullptr;
}

OpenShape ReadInputShape(bool open, ConfigReader& config) {
  const Spelling* spelling = FindSpelling(config);
  if (spelling == nullptr) {
    config.Fail("batch_shape", "required, such as [null,28,28,1]");
    return {};
  }
  return ReadShape(spelling->field, spelling->has_batch, open, config);
}

OpenShape ReadRaggedInputLayer(ConfigReader& config) {
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

OpenShape ReadInputLayer(bool open, ConfigReader& config) {
  config.Refuse("sparse", false);
  config.Refuse("optional", false);
  return ReadInputShape(open, config);
}

}  // namespace cairn::nn

// Functions of keras.ops that take parts of a tensor, or repeat it: x[:, 0], slice, split, unstack and tile.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Elements `begin`, begin + stride, ... of an axis: `count` of them.
struct Range {
  int64_t begin = 0, count = 0, stride = 1;
};

// The extents of `shape` before and after extent `at`, multiplied.
struct Surroundings {
  int64_t before = 1, extent = 1, after = 1;
  Surroundings(const Shape& shape, int at) : extent(shape[at]) {
    for (int i = 0; i < at; ++i) before *= shape[i];
    for (int i = at + 1; i < shape.rank(); ++i) after *= shape[i];
  }
};

// Crops extent `at` of the latest output to `count` elements from `begin` on.
void Crop(int at, int64_t begin, int64_t count, FunctionSteps& steps) {
  const Shape shape = steps.shape();
  const int64_t extent = shape[at];
  if (begin == 0 && count == extent) return;
  const bool is_spatial = shape.rank() >= 2 && shape.rank() <= 4 && at + 1 < shape.rank();
  const Surroundings around(shape, at);
  if (!is_spatial) steps.Reshape({around.before, extent, around.after});
  const int axes = is_spatial ? shape.rank() - 1 : 2;
  json cropping = json::array();
  for (int i = 0; i < axes; ++i) cropping.push_back({0, 0});
  cropping[static_cast<size_t>(is_spatial ? at : 1)] = {begin, extent - begin - count};
  steps.Add(absl::StrCat("Cropping", axes, "D"), {{"cropping", axes == 1 ? cropping[0] : cropping}});
  if (is_spatial) return;
  std::vector<int64_t> extents = ExtentsOf(shape);
  extents[static_cast<size_t>(at)] = count;
  steps.Reshape(extents);
}

// The same with a stride: as the first of the groups of `stride` elements, of which the last is filled up with zeros.
void TakeRange(int at, const Range& range, FunctionSteps& steps) {
  if (range.stride == 1 || range.count == 1) return Crop(at, range.begin, range.count, steps);
  std::vector<int64_t> extents = ExtentsOf(steps.shape());
  const int64_t groups = range.count * range.stride, rest = extents[static_cast<size_t>(at)] - range.begin;
  Crop(at, range.begin, std::min(groups, rest), steps);
  const Surroundings around(steps.shape(), at);
  if (groups > rest) {
    steps.Reshape({around.before, rest, around.after});
    steps.Add("ZeroPadding2D", {{"padding", {{0, 0}, {0, groups - rest}}}});
  }
  steps.Reshape({around.before * range.count, range.stride, around.after});
  Crop(1, 0, 1, steps);
  extents[static_cast<size_t>(at)] = range.count;
  steps.Reshape(extents);
}

bool IsSlice(const json& part) {
  return part.is_object() && part.value("class_name", json()) == "__slice__";
}
// Whether the part is `:`, `0:` or `::1`, whatever the extent of its axis.
bool IsWhole(const json& part) {
  if (!IsSlice(part)) return false;
  const json config = part.value("config", json::object());
  const auto has = [&](const char* field, int64_t value) {
    return !config.is_object() || config.value(field, json()).is_null() || config[field] == value;
  };
  return has("start", 0) && has("step", 1) && (!config.is_object() || config.value("stop", json()).is_null());
}
bool IsEllipsis(const json& part) {
  return part.is_object() && part.value("class_name", json()) == "__ellipsis__";
}

absl::StatusOr<int64_t> IndexOf(const json& value) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t{kLargest}
                                               : value.is_number_integer() && value >= -kLargest;
  if (fits) return value.get<int64_t>();
  return absl::InvalidArgumentError(absl::StrCat(value.dump(), " is not an index"));
}

// A part of a slice such as 1:5, which Python counts from the end if it is negative. Null: none.
absl::StatusOr<std::optional<int64_t>> EndOf(const json& slice, const char* field) {
  const json config = slice.value("config", json::object());
  const json end = config.is_object() ? config.value(field, json()) : json();
  if (end.is_null()) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(const int64_t index, IndexOf(end));
  return index;
}

// The elements of an axis of this extent that a slice selects.
absl::StatusOr<Range> RangeOf(const json& slice, int64_t extent) {
  const auto start = EndOf(slice, "start"), stop = EndOf(slice, "stop"), step = EndOf(slice, "step");
  for (const auto& end : {start, stop, step}) {
    if (!end.ok()) return end.status();
  }
  const int64_t stride = step->value_or(1);
  if (stride < 1) return absl::InvalidArgumentError(absl::StrCat("a step of ", stride, " is not supported"));
  const auto place = [&](const std::optional<int64_t>& end, int64_t absent) {
    const int64_t counted = end.has_value() ? (*end < 0 ? *end + extent : *end) : absent;
    return std::clamp<int64_t>(counted, 0, extent);
  };
  const int64_t begin = place(*start, 0), end = place(*stop, extent);
  if (begin >= end)
    return absl::InvalidArgumentError(absl::StrCat("selects nothing of ", extent, " elements"));
  return Range{.begin = begin, .count = (end - begin + stride - 1) / stride, .stride = stride};
}

// An index without its ellipsis: a part for each axis, the batch among them, and nulls for new axes.
absl::StatusOr<std::vector<json>> PartsOf(const json& index, int64_t axes) {
  std::vector<json> written = {index}, parts;
  if (index.is_array()) written.assign(index.begin(), index.end());
  const auto is_axis = [](const json& part) { return !part.is_null() && !IsEllipsis(part); };
  const int64_t given = absl::c_count_if(written, is_axis), ellipses = absl::c_count_if(written, IsEllipsis);
  if (given > axes || ellipses > 1)
    return absl::InvalidArgumentError(absl::StrCat(given, " indices do not fit ", axes, " axes"));
  const json whole = {{"class_name", "__slice__"}};
  const auto rest = static_cast<size_t>(axes - given);
  for (const json& part : written) {
    if (IsEllipsis(part)) {
      parts.insert(parts.end(), rest, whole);
    } else {
      parts.push_back(part);
    }
  }
  if (ellipses == 0) parts.insert(parts.end(), rest, whole);
  if (!IsWhole(parts[0]))
    return absl::InvalidArgumentError("the first index is that of the batch, and must be : or ...");
  parts.erase(parts.begin());
  return parts;
}

// x[index]
absl::Status Select(const json& index, FunctionSteps& steps) {
  const auto parts = PartsOf(index, AxesOf(steps.shape()));
  if (!parts.ok()) return parts.status();
  std::vector<int64_t> extents;
  bool drops = false;
  int at = 0;
  for (const json& part : *parts) {
    if (part.is_null()) {
      extents.push_back(1);
      drops = true;
      continue;
    }
    const int64_t extent = steps.shape()[at];
    if (part.is_number_integer()) {
      CAIRN_ASSIGN_OR_RETURN(const int64_t one, IndexOf(part));
      if (one >= extent || one < -extent)
        return absl::OutOfRangeError(absl::StrCat(one, " is not an index of ", extent, " elements"));
      Crop(at++, one < 0 ? one + extent : one, 1, steps);
      drops = true;
      continue;
    }
    if (!IsSlice(part))
      return absl::InvalidArgumentError(
          absl::StrCat("only integers, slices, ... and None are supported, not ", part.dump()));
    const auto range = RangeOf(part, extent);
    if (!range.ok()) return range.status();
    TakeRange(at++, *range, steps);
    extents.push_back(range->count);
  }
  if (drops) steps.Reshape(extents);
  return absl::OkStatus();
}

// Whether the index selects one step of a sequence, and nothing else.
bool SelectsStep(const json& index) {
  return index.is_array() && index.size() >= 2 && index[1].is_number_integer() &&
         absl::c_all_of(json(json::array_t(index.begin() + 2, index.end())), IsWhole) && IsWhole(index[0]);
}

}  // namespace

FunctionBody ReadGetItem(const FunctionOption&, ConfigReader& config) {
  const json index = config.Raw("index");
  return [index](FunctionSteps& steps) {
    const int rank = steps.shape().rank();
    if (SelectsStep(index) && rank >= 2 && static_cast<int>(index.size()) <= rank + 1) {
      steps.Add("SelectStep", {{"step", index[1]}});
    } else if (const auto status = Select(index, steps); !status.ok()) {
      steps.Fail("index", status.message());
    }
  };
}

FunctionBody ReadSlice(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> starts = config.Ints("start_indices"), shape = config.Ints("shape");
  return [starts, shape](FunctionSteps& steps) {
    const Shape input = steps.shape();
    const auto axes = static_cast<size_t>(AxesOf(input));
    if (starts.size() != axes || shape.size() != axes) {
      return steps.Fail("shape", absl::StrCat("[", absl::StrJoin(shape, ","), "] does not fit input ",
                                              input.ToString(), " with its batch"));
    }
    if (starts[0] != 0 || shape[0] != -1)
      return steps.Fail("shape", "the first extent is that of the batch: only -1 from 0 on is supported");
    for (size_t axis = 1; axis < axes; ++axis) {
      const int at = static_cast<int>(axis) - 1;
      const bool is_inside = starts[axis] >= 0 && starts[axis] < input[at];
      const int64_t rest = is_inside ? input[at] - starts[axis] : 0;
      const int64_t count = shape[axis] == -1 ? rest : shape[axis];
      if (count < 1 || count > rest) {
        return steps.Fail("shape", absl::StrCat(shape[axis], " elements from ", starts[axis], " on of the ",
                                                input[at], " of axis ", axis));
      }
      Crop(at, starts[axis], count, steps);
    }
  };
}

FunctionBody ReadSplit(const FunctionOption&, ConfigReader& config) {
  const bool is_list = config.Raw("indices_or_sections").is_array();
  const std::vector<int64_t> given = config.Ints("indices_or_sections");
  return [is_list, given, axis = ReadAxis("axis", config, 0)](FunctionSteps& steps) {
    const Shape input = steps.shape();
    const int64_t counted = AxisOf(axis, AxesOf(input), "axis", steps);
    if (counted < 1) return;
    const int64_t extent = input[static_cast<int>(counted) - 1];
    std::vector<int64_t> ends = given;
    if (!is_list) {
      const int64_t parts = given.empty() ? 0 : given[0];
      if (parts < 1 || extent % parts != 0) {
        return steps.Fail("indices_or_sections",
                          absl::StrCat(extent, " elements are not ", parts, " equal parts"));
      }
      ends.clear();
      for (int64_t part = 1; part < parts; ++part) ends.push_back(part * (extent / parts));
    }
    ends.insert(ends.begin(), 0);
    ends.push_back(extent);
    for (size_t i = 1; i < ends.size(); ++i) {
      if (ends[i] > ends[i - 1] && ends[i] <= extent) continue;
      return steps.Fail("indices_or_sections", absl::StrCat("[", absl::StrJoin(given, ","), "] of ", extent,
                                                            " elements: expected rising indices, so that no "
                                                            "part is empty"));
    }
    if (!steps.SetNumOutputs(static_cast<int64_t>(ends.size()) - 1)) return;
    const auto part = static_cast<size_t>(steps.output());
    Crop(static_cast<int>(counted) - 1, ends[part], ends[part + 1] - ends[part], steps);
  };
}

FunctionBody ReadTile(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> repeats = config.Ints("repeats");
  constexpr int64_t kMaxRepeats = 1 << 20;
  if (absl::c_any_of(repeats, [](int64_t count) { return count < 1 || count > kMaxRepeats; })) {
    config.Fail("repeats", absl::StrCat("[", absl::StrJoin(repeats, ","), "]: expected numbers from 1 to ",
                                        kMaxRepeats));
  }
  return [repeats](FunctionSteps& steps) {
    const Shape input = steps.shape();
    const auto axes = static_cast<size_t>(AxesOf(input));
    // As in NumPy, missing numbers are 1, those of the first axes.
    if (repeats.size() > axes || (repeats.size() == axes && repeats[0] != 1)) {
      return steps.Fail("repeats",
                        absl::StrCat("[", absl::StrJoin(repeats, ","), "] of input ", input.ToString(),
                                     " with its batch: the batch cannot be repeated"));
    }
    std::vector<int64_t> extents = ExtentsOf(input);
    for (size_t i = 0; i < repeats.size(); ++i) {
      const size_t axis = axes - repeats.size() + i;
      if (repeats[i] == 1) continue;
      const Surroundings around(steps.shape(), static_cast<int>(axis) - 1);
      steps.Reshape({around.before, 1, around.extent * around.after});
      steps.Add("UpSampling2D", {{"size", {1, repeats[i]}}});
      extents[axis - 1] *= repeats[i];
      steps.Reshape(extents);
    }
  };
}

FunctionBody ReadUnstack(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> num = config.Ints("num", {{0}});
  return [num, axis = ReadAxis("axis", config, 0)](FunctionSteps& steps) {
    const Shape input = steps.shape();
    const int64_t counted = AxisOf(axis, AxesOf(input), "axis", steps);
    if (counted < 1) return;
    const int at = static_cast<int>(counted) - 1;
    if (num.size() != 1 || (num[0] != 0 && num[0] != input[at])) {
      return steps.Fail(
          "num", absl::StrCat("axis ", axis, " has ", input[at], " elements, not ", absl::StrJoin(num, ",")));
    }
    if (!steps.SetNumOutputs(input[at])) return;
    Crop(at, steps.output(), 1, steps);
    std::vector<int64_t> extents = ExtentsOf(input);
    extents.erase(extents.begin() + at);
    steps.Reshape(extents);
  };
}

}  // namespace cairn::nn

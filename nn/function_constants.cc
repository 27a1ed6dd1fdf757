// Arithmetic of a tensor and a constant array of the model file, such as `x + positions`: Rescaling with a value for
// each element of an example.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nn/function_axes.h"
#include "nn/function_bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct ConstantArray {
  std::vector<int64_t> extents;
  std::vector<double> values;  // [extents], row-major
};

// Appends the numbers of nested lists of equal lengths. False for anything else.
bool ReadNested(const json& value, size_t depth, ConstantArray& array) {
  constexpr size_t kMaxAxes = 8;
  if (!value.is_array()) {
    if (!value.is_number() || depth != array.extents.size()) return false;
    array.values.push_back(value.get<double>());
    return true;
  }
  if (depth == array.extents.size()) {
    if (depth == kMaxAxes || !array.values.empty() || value.empty()) return false;
    array.extents.push_back(static_cast<int64_t>(value.size()));
  }
  if (static_cast<int64_t>(value.size()) != array.extents[depth]) return false;
  return std::all_of(value.begin(), value.end(),
                     [&](const json& entry) { return ReadNested(entry, depth + 1, array); });
}

// The values for each element of an example of this shape, which the array is broadcast to. Empty, after a failure: it
// is not.
std::vector<double> BroadcastTo(const Shape& shape, const ConstantArray& array, FunctionSteps& steps) {
  std::vector<int64_t> extents = array.extents;
  const auto rank = static_cast<size_t>(shape.rank());
  const bool has_batch = extents.size() == rank + 1;
  bool fits = !has_batch || extents[0] == 1;
  if (has_batch) extents.erase(extents.begin());
  fits = fits && extents.size() <= rank;
  if (fits) extents.insert(extents.begin(), rank - extents.size(), 1);
  for (size_t i = 0; fits && i < rank; ++i)
    fits = extents[i] == 1 || extents[i] == shape[static_cast<int>(i)];
  constexpr int64_t kMaxElements = 1 << 26;
  if (!fits || shape.num_elements() > kMaxElements) {
    steps.Fail("constant",
               absl::StrCat("an array ", Shape(array.extents).ToString(), " is not supported for input ",
                            shape.ToString(), ": expected the extents of its last axes, or 1"));
    return {};
  }
  std::vector<double> values(static_cast<size_t>(shape.num_elements()));
  for (size_t element = 0; element < values.size(); ++element) {
    size_t rest = element, at = 0, stride = 1;
    for (size_t i = rank; i-- > 0;) {
      const auto extent = static_cast<size_t>(shape[static_cast<int>(i)]);
      if (extents[i] > 1) at += rest % extent * stride;
      stride *= static_cast<size_t>(extents[i]);
      rest /= extent;
    }
    values[element] = array.values[at];
  }
  return values;
}

}  // namespace

FunctionBody MergeWithConstant(const std::string& layer, ConfigReader& config) {
  const json document = config.Raw("constant");
  const bool is_first = config.Bool("number_is_first", false);
  ConstantArray array;
  const json content = document.is_object() ? document.value("config", json()) : json();
  if (!content.is_object() || !ReadNested(content.value("value", json()), 0, array))
    config.Fail("constant", "expected nested lists of numbers");
  if (layer != "Add" && layer != "Subtract" && layer != "Multiply" && layer != "Divide")
    config.Fail("constant", "an array is not supported here, only a number");
  return [layer, is_first, array = std::move(array)](FunctionSteps& steps) {
    const Shape shape = steps.shape();
    std::vector<double> scale = {1}, offset = {0}, values = BroadcastTo(shape, array, steps);
    if (values.empty()) return;
    if (layer == "Add") {
      offset = std::move(values);
    } else if (layer == "Subtract") {
      if (is_first) scale[0] = -1;
      if (!is_first) std::transform(values.begin(), values.end(), values.begin(), std::negate<>());
      offset = std::move(values);
    } else {
      if (layer == "Divide" && is_first) steps.AddMath("reciprocal");
      if (layer == "Divide" && !is_first) {
        std::transform(values.begin(), values.end(), values.begin(), [](double value) { return 1 / value; });
      }
      scale = std::move(values);
    }
    if (shape.rank() != 1) steps.Reshape({shape.num_elements()});
    steps.Add("Rescaling", {{"scale", scale}, {"offset", offset}});
    if (shape.rank() != 1) steps.Reshape(ExtentsOf(shape));
  };
}

}  // namespace cairn::nn

#include "nn/functions/constants.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Appends the numbers of nested lists of equal lengths. False for anything else.
bool ReadNested(const json& value, size_t depth, ConstantArray& array) {
  constexpr size_t kMaxAxes = 8;
  if (!value.is_array()) {
    if (!(value.is_number() || value.is_boolean()) || depth != array.extents.size()) return false;
    array.values.push_back(value.is_boolean() ? value.get<bool>() : value.get<double>());
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

std::optional<ConstantArray> ReadConstant(const json& argument) {
  ConstantArray array;
  const bool is_array = argument.is_object();
  const json content = is_array ? argument.value("config", json()) : argument;
  const json value = !is_array ? argument : content.is_object() ? content.value("value", json()) : json();
  if (!ReadNested(value, 0, array)) return std::nullopt;
  return array;
}

void AddElementwise(const std::string& function, const std::vector<PlacedConstant>& constants,
                    FunctionSteps& steps) {
  std::vector<int> inputs;
  const int rank = steps.InputShape().rank();
  for (size_t i = 0; i < steps.num_inputs(); ++i) {
    inputs.push_back(FunctionSteps::Input(i));
    // A function aligns shapes from their last axis, the batch among them.
    if (steps.InputShape(i).rank() != rank) {
      return steps.Fail("inputs",
                        absl::StrCat(steps.InputShape().ToString(), " and ", steps.InputShape(i).ToString(),
                                     " have different numbers of axes"));
    }
  }
  json written = json::array();
  for (const PlacedConstant& constant : constants) {
    std::vector<int64_t> extents = constant.array.extents;
    const auto axes = static_cast<size_t>(rank);
    const bool has_batch = extents.size() == axes + 1;
    if (extents.size() > axes + 1 || (has_batch && extents[0] != 1)) {
      return steps.Fail("constants",
                        absl::StrCat("an array ", Shape(extents).ToString(), " is not supported for input ",
                                     steps.InputShape().ToString(), " without its batch"));
    }
    if (has_batch) extents.erase(extents.begin());
    extents.insert(extents.begin(), axes - extents.size(), 1);
    written.push_back({{"input", constant.input}, {"shape", extents}, {"values", constant.array.values}});
  }
  steps.Add("ElementwiseFunction", {{"function", function}, {"constants", written}}, std::move(inputs));
}

void AddWithNumber(const std::string& function, double number, FunctionSteps& steps) {
  const std::vector<int64_t> extents(static_cast<size_t>(steps.shape().rank()), 1);
  const json constant = {{"input", 1}, {"shape", extents}, {"values", {number}}};
  steps.Add("ElementwiseFunction", {{"function", function}, {"constants", json::array({constant})}});
}

FunctionBody MergeWithConstant(const std::string& layer, ConfigReader& config) {
  const json document = config.Raw("constant");
  const bool is_first = config.Bool("number_is_first", false);
  std::optional<ConstantArray> read = ReadConstant(document);
  if (!read.has_value()) config.Fail("constant", "expected nested lists of numbers");
  ConstantArray array = std::move(read).value_or(ConstantArray());
  if (layer == "Maximum" || layer == "Minimum") {
    return [name = layer == "Maximum" ? "maximum" : "minimum", is_first, array](FunctionSteps& steps) {
      AddElementwise(name, {{is_first ? size_t{0} : size_t{1}, array}}, steps);
    };
  }
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

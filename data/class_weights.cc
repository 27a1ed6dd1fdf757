#include "data/class_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace cairn::data {
namespace {

// Whether the numbers are those of a one-hot vector, or probabilities.
bool IsDistribution(absl::Span<const float> numbers) {
  constexpr double kRounding = 1e-3;  // of 16-bit numbers
  double sum = 0;
  for (const float number : numbers) {
    if (!(number >= 0)) return false;
    sum += number;
  }
  return std::fabs(sum - 1) < kRounding;
}

struct Classes {
  std::vector<int64_t> of_rows;  // [examples, rows]
  int64_t count = 0;             // 0: the targets have no classes
  Shape rows{};                  // those of an example; []: one
};

Shape ShapeOf(const Targets& targets) {
  return targets.shape.num_elements() == targets.per_example ? targets.shape : Shape({targets.per_example});
}

// `known_width`: DataOptions::targets_per_row.
Classes FromVectors(const Targets& targets, int64_t known_width) {
  Shape shape = ShapeOf(targets);
  if (known_width > 1 && (shape.rank() == 0 || shape[shape.rank() - 1] != known_width)) {
    shape = {targets.per_example / known_width, known_width};
  }
  const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  if (width == 1 || known_width == 1) return {};
  Classes classes = {.of_rows = {},
                     .count = width,
                     .rows = Shape(shape.dims().first(static_cast<size_t>(shape.rank() - 1)))};
  for (size_t at = 0; at < targets.values.size(); at += static_cast<size_t>(width)) {
    const auto vector = absl::MakeConstSpan(targets.values).subspan(at, static_cast<size_t>(width));
    if (known_width == 0 && !IsDistribution(vector)) return {};
    classes.of_rows.push_back(absl::c_max_element(vector) - vector.begin());
  }
  return classes;
}

// One more than the largest of the numbers, of which negative ones stand for no class. 0 if some are not integers, or
// none is a class.
int64_t ClassesOfIntegers(absl::Span<const float> numbers) {
  constexpr float kLargest = 1 << 24;  // beyond, floats lack integers
  float largest = -1;
  for (const float number : numbers) {
    if (!(std::fabs(number) < kLargest) || number != std::trunc(number)) return 0;
    largest = std::max(largest, number);
  }
  return static_cast<int64_t>(largest) + 1;
}

Classes FromIndices(const Targets& targets) {
  Classes classes = {.count = std::max(targets.num_classes, targets.position_classes)};
  if (classes.count == 0) classes.count = ClassesOfIntegers(targets.values);
  const Shape shape = ShapeOf(targets);
  absl::Span<const int64_t> rows = shape.dims();
  if (!rows.empty() && rows.back() == 1) rows.remove_suffix(1);
  if (targets.per_example > 1) classes.rows = Shape(rows);
  if (classes.count > 0) classes.of_rows.assign(targets.values.begin(), targets.values.end());
  return classes;
}

}  // namespace

absl::Status ApplyClassWeights(const DataOptions& options, Split& train) {
  if (options.class_weights.empty()) return absl::OkStatus();
  const auto refusal = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(train.targets_name, ": ", what...));
  };
  if (train.target_rows != nullptr) return refusal("targets are tokens, which cannot have class weights");
  if (options.target_parts.size() > 1)
    return refusal("class weights need a model with one output, not ", options.target_parts.size());
  const int64_t width = options.targets_per_row;
  if (width > 0 && train.targets.per_example % width != 0)
    return absl::OkStatus();  // they do not fit the model
  Classes classes = FromVectors(train.targets, width);
  if (classes.count == 0) classes = FromIndices(train.targets);
  if (classes.count == 0) {
    return refusal(
        "targets are numbers, neither class indices nor one-hot vectors, so classes cannot have weights");
  }
  for (const auto& [label, weight] : options.class_weights) {
    if (label >= 0 && label < classes.count) continue;
    return refusal("class ", label, " has the weight ", weight, ", but labels go up to ", classes.count - 1);
  }
  const auto rows = static_cast<size_t>(std::max<int64_t>(classes.rows.num_elements(), 1));
  Weights& weights = train.weights;
  if (weights.values.empty()) {
    weights.values.assign(classes.of_rows.size() / rows, 1.0f);
    weights.parts = {{.name = train.targets_name}};
  }
  if (rows > 1 && weights.per_example() == 1)
    weights.Spread({{.per_example = static_cast<int64_t>(rows), .shape = classes.rows}});
  const auto each = static_cast<size_t>(weights.per_example());
  if (each % rows != 0) {
    return refusal("has classes for ", rows, " rows of an example, but examples have ", each, " weights");
  }
  const size_t same = each / rows;  // weights that have the class of one row
  for (size_t i = 0; i < weights.values.size() && i / same < classes.of_rows.size(); ++i) {
    const auto found = options.class_weights.find(classes.of_rows[i / same]);
    if (found != options.class_weights.end()) weights.values[i] *= found->second;
  }
  return absl::OkStatus();
}

}  // namespace cairn::data

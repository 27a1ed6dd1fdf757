#include "data/targets.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

template <typename... Text>
absl::Status Refusal(const std::string& name, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", text...));
}

std::vector<float> ToFloats(const Array& array) {
  std::vector<float> values(static_cast<size_t>(array.shape.num_elements()));
  WithType(array.type, [&](auto zero) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(ElementAt<decltype(zero)>(array.bytes.data(), static_cast<int64_t>(i)));
    }
  });
  return values;
}

// The largest class index + 1; 0 if an integer is negative. Computed from the integers, since large ones
// would be rounded as floats.
absl::StatusOr<int64_t> CountClasses(const Array& array, const std::string& name) {
  int64_t largest = -1;
  bool negative = false;
  for (int64_t i = 0; i < array.shape.num_elements(); ++i) {
    const auto label = WithType(array.type, [&](auto zero) {
      return static_cast<int64_t>(ElementAt<decltype(zero)>(array.bytes.data(), i));
    });
    negative = negative || label < 0;
    if (label > kLargestLabel) {
      return Refusal(name, "label ", label, " of example ", i, " is not a class index");
    }
    largest = std::max(largest, label);
  }
  return negative ? 0 : largest + 1;
}

int64_t CountWeights(absl::Span<const WeightPart> parts) {
  int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.per_example;
  return sum;
}

}  // namespace

int64_t ClassesIn(absl::Span<const float> values) {
  float largest = -1;
  for (const float value : values) {
    if (!(value >= 0 && value <= static_cast<float>(kLargestLabel)) || value != std::floor(value)) return 0;
    largest = std::max(largest, value);
  }
  return static_cast<int64_t>(largest) + 1;
}

absl::StatusOr<Targets> ReadTargets(const Array& array, const std::string& name) {
  const Shape& shape = array.shape;
  if (shape.rank() < 1 || shape.row_elements() == 0) {
    return Refusal(name, "targets have the shape ", shape.ToString(),
                   "; it must be [examples], or [examples, ...] with the targets of an example");
  }
  Targets targets{.per_example = shape.row_elements(), .shape = Shape(shape.dims().subspan(1))};
  targets.values = ToFloats(array);
  int64_t& classes = targets.per_example == 1 ? targets.num_classes : targets.position_classes;
  if (IsInteger(array.type)) {
    const auto counted = CountClasses(array, name);
    // If an example has several integers, they may also be plain numbers of any size.
    if (!counted.ok() && targets.per_example == 1) return counted.status();
    classes = counted.value_or(0);
  } else {
    classes = ClassesIn(targets.values);
  }
  const auto bad = std::find_if_not(targets.values.begin(), targets.values.end(),
                                    [](float x) { return std::isfinite(x); });
  if (bad != targets.values.end()) {
    return Refusal(name, "target ", *bad, " of example ",
                   (bad - targets.values.begin()) / targets.per_example, " is not finite");
  }
  return targets;
}

absl::StatusOr<Targets> JoinTargets(absl::Span<const Targets> targets, absl::Span<const TargetPart> parts,
                                    absl::Span<const std::string> names) {
  Targets joined{.per_example = 0};
  const int64_t examples = targets[0].size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (targets[i].per_example != parts[i].per_example) {
      return Refusal(names[i], targets[i].per_example, " targets per example, output '", parts[i].output,
                     "' of the model needs ", parts[i].per_example);
    }
    if (targets[i].size() != examples) {
      return Refusal(names[i], targets[i].size(), " examples, but ", names[0], " has ", examples);
    }
    joined.per_example += parts[i].per_example;
  }
  joined.shape = {joined.per_example};
  joined.values.resize(static_cast<size_t>(examples * joined.per_example));
  auto to = joined.values.begin();
  for (int64_t example = 0; example < examples; ++example) {
    for (const Targets& part : targets)
      to = std::copy_n(part.values.begin() + example * part.per_example, part.per_example, to);
  }
  return joined;
}

absl::Status ApplyThreshold(float threshold, Targets& targets) {
  if (targets.per_example != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("needs one number for each example, not ", targets.per_example));
  }
  for (float& value : targets.values) value = value >= threshold ? 1.0f : 0.0f;
  targets.num_classes = 2;
  return absl::OkStatus();
}

int64_t Weights::per_example() const {
  return CountWeights(parts);
}

std::string Weights::name() const {
  const auto named = absl::c_find_if(parts, [](const WeightPart& part) { return !part.name.empty(); });
  return named == parts.end() ? "" : named->name;
}

void Weights::Spread(absl::Span<const WeightPart> form) {
  CAIRN_CHECK(parts.size() == 1 || parts.size() == form.size());
  const auto same = [](const WeightPart& a, const WeightPart& b) { return a.per_example == b.per_example; };
  if (absl::c_equal(parts, form, same)) return;
  std::vector<float> spread;
  const int64_t examples = size();
  spread.reserve(values.size() / static_cast<size_t>(per_example()) *
                 static_cast<size_t>(CountWeights(form)));
  const float* from = values.data();
  for (int64_t example = 0; example < examples; ++example) {
    const float* part = from;
    for (size_t i = 0; i < form.size(); ++i) {
      const int64_t own = PartOf(i).per_example;
      CAIRN_CHECK(own == 1 || own == form[i].per_example);
      for (int64_t k = 0; k < form[i].per_example; ++k) spread.push_back(part[own == 1 ? 0 : k]);
      if (parts.size() > 1) part += own;
    }
    from += per_example();
  }
  std::vector<WeightPart> named(form.begin(), form.end());
  for (size_t i = 0; i < named.size(); ++i) named[i].name = PartOf(i).name;
  values = std::move(spread);
  parts = std::move(named);
}

std::vector<WeightPart> CommonParts(absl::Span<const WeightPart> a, absl::Span<const WeightPart> b) {
  std::vector<WeightPart> common;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const WeightPart &of_a = a[a.size() == 1 ? 0 : i], &of_b = b[b.size() == 1 ? 0 : i];
    if (of_a.per_example != 1 && of_b.per_example != 1 && of_a.shape != of_b.shape) return {};
    common.push_back(of_a.per_example == 1 ? of_b : of_a);
  }
  return common;
}

absl::StatusOr<Weights> ReadWeights(const Array& array, const std::string& name) {
  const Shape& shape = array.shape;
  if (shape.rank() < 1 || shape.row_elements() == 0) {
    return Refusal(name, "weights have the shape ", shape.ToString(),
                   "; it must be [examples], or [examples, ...] with a weight for each row of the outputs");
  }
  Weights weights{.values = ToFloats(array)};
  WeightPart& part = weights.parts[0];
  part = {.per_example = shape.row_elements(), .name = name};
  absl::Span<const int64_t> of_example = shape.dims().subspan(1);
  if (!of_example.empty() && of_example.back() == 1) of_example.remove_suffix(1);
  if (part.per_example > 1) part.shape = Shape(of_example);
  const auto bad = std::find_if_not(weights.values.begin(), weights.values.end(),
                                    [](float x) { return std::isfinite(x) && x >= 0; });
  if (bad != weights.values.end()) {
    return Refusal(name, "weight ", *bad, " of example ", (bad - weights.values.begin()) / part.per_example,
                   " is not a finite number of at least 0");
  }
  return weights;
}

absl::StatusOr<Weights> JoinWeights(absl::Span<const std::optional<Weights>> weights) {
  const Weights& first = **absl::c_find_if(weights, [](const auto& part) { return part.has_value(); });
  Weights joined{.parts = {}};
  for (const std::optional<Weights>& part : weights) {
    joined.parts.push_back(part.has_value() ? part->parts[0] : WeightPart());
    if (!part.has_value() || part->size() == first.size()) continue;
    return Refusal(part->parts[0].name, part->size(), " weights, but ", first.parts[0].name, " has ",
                   first.size());
  }
  joined.values.reserve(static_cast<size_t>(first.size() * joined.per_example()));
  for (int64_t example = 0; example < first.size(); ++example) {
    for (const std::optional<Weights>& part : weights) {
      if (!part.has_value()) {
        joined.values.push_back(1);
      } else {
        const absl::Span<const float> of_example = part->Of(example);
        joined.values.insert(joined.values.end(), of_example.begin(), of_example.end());
      }
    }
  }
  return joined;
}

}  // namespace cairn::data

// The targets and weights of examples, converted from arrays to floats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "data/array.h"

namespace cairn::data {

struct Targets {
  std::vector<float> values{};  // [examples, per_example]
  int64_t per_example = 1;
  Shape shape{};            // one example's target, with per_example elements; may be [] for one number
  int64_t num_classes = 0;  // largest class index + 1; 0 if the values are not class indices
  // The largest value + 1, if each example has several integers and none is negative; else 0. The integers
  // may be class indices of positions (a mask) or numbers (one-hot vectors).
  int64_t position_classes = 0;

  int64_t size() const { return static_cast<int64_t>(values.size()) / per_example; }
};

// The largest class index: floats represent all integers up to here exactly.
inline constexpr int64_t kLargestLabel = int64_t{1} << 24;

// The largest value + 1 if all values are class indices, integers from 0 to kLargestLabel; otherwise 0.
int64_t ClassesIn(absl::Span<const float> values);

// Converts `array` to targets. Integral numbers [examples] or [examples,1], of an integer or a float type,
// are class indices unless one is negative. Non-negative integral numbers with more axes or elements may be
// class indices for each position or plain numbers (one-hot vectors, several labels); the loss decides which.
//
// INVALID_ARGUMENT naming `name` for empty shapes, class indices [examples] that are too large, and numbers
// that are not finite.
absl::StatusOr<Targets> ReadTargets(const Array& array, const std::string& name);

// The targets of one of several outputs of a model.
struct TargetPart {
  std::string output;  // its name
  int64_t per_example = 1;
};

// Joins the targets of several outputs, example by example. [part] `names`: of the arrays. INVALID_ARGUMENT naming the
// array if its size is not that of its part, or its number of examples differs.
absl::StatusOr<Targets> JoinTargets(absl::Span<const Targets> targets, absl::Span<const TargetPart> parts,
                                    absl::Span<const std::string> names);

// Makes every target class 1 if it is at least `threshold`, and class 0 otherwise. INVALID_ARGUMENT unless each example
// has one number.
absl::Status ApplyThreshold(float threshold, Targets& targets);

// The weights that an example has for all outputs of a model, or for one of several.
struct WeightPart {
  int64_t per_example = 1;  // 1, or one for each row of the output, as for each token of a text
  Shape shape{};            // without a last axis of 1; [] for one weight
  std::string name{};       // in messages: "mnist.npz: sample_weight_train"
};

// The weights of examples.
struct Weights {
  std::vector<float> values{};  // [examples, per_example()]; empty: every example weighs 1
  // One for all outputs, or one for each output with a loss, in the model's order. In `values` they follow one another.
  std::vector<WeightPart> parts = {WeightPart()};

  int64_t per_example() const;
  // In messages: that of the first array.
  std::string name() const;
  int64_t size() const { return static_cast<int64_t>(values.size()) / per_example(); }
  absl::Span<const float> Of(int64_t example) const {
    const auto each = static_cast<size_t>(per_example());
    return absl::MakeConstSpan(values).subspan(static_cast<size_t>(example) * each, each);
  }
  // The part of an output, by its place among those with a loss.
  const WeightPart& PartOf(size_t output) const { return parts[parts.size() == 1 ? 0 : output]; }
  // Changes the parts to those of `form`: repeats weights of all outputs for each output, and the weight of an example
  // for each of its rows. The names stay. CHECK-fails unless each part has one weight or as many as in `form`.
  void Spread(absl::Span<const WeightPart> form);
};

// The fewest parts that weights with the parts `a`, and those with `b`, can be spread to; empty if there are none.
std::vector<WeightPart> CommonParts(absl::Span<const WeightPart> a, absl::Span<const WeightPart> b);

// Reads weights [examples], [examples,1] or, for each row of the outputs, [examples, ...]. INVALID_ARGUMENT naming
// `name` for a weight that is negative or not finite.
absl::StatusOr<Weights> ReadWeights(const Array& array, const std::string& name);

// Joins the weights for several outputs, example by example. nullopt: every example weighs 1; at least one is not.
// INVALID_ARGUMENT naming the array if its number of examples differs.
absl::StatusOr<Weights> JoinWeights(absl::Span<const std::optional<Weights>> weights);

}  // namespace cairn::data

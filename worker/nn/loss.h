// What training minimises: a loss by Keras' name, and whether it fits a model and a data set.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "kernels/ops.h"
#include "worker/nn/compile_config.h"

namespace cairn::nn {

// Keras' loss, reduced to the mean over the batch's examples. Options that `kind` lacks keep their defaults.
struct LossSpec {
  kernels::LossKind kind = kernels::LossKind::kSparseCategoricalCrossentropy;
  bool from_logits = false;    // false: outputs are probabilities, clipped to [1e-7, 1 - 1e-7]
  double label_smoothing = 0;  // in [0, 1]
  double delta = 1;            // above 0
};

// From compile_config's loss, or from KerasObject{name} for a name that a flag gave: Keras' class names
// ("MeanSquaredError"), function names ("mean_squared_error") and short ones ("mse"), in any case.
// INVALID_ARGUMENT for another loss, listing the supported ones, and for options that Keras' has and this one
// lacks.
absl::StatusOr<LossSpec> ParseLoss(const KerasObject& loss);

// "SparseCategoricalCrossentropy"
absl::string_view ClassName(kernels::LossKind kind);
// True for the cross entropies, whose outputs are scores of classes.
bool IsClassification(kernels::LossKind kind);

// The loss for `batch` examples of a model's output [..., width] without the batch: rows are all its axes but
// the last.
kernels::LossParams MakeLossParams(const LossSpec& loss, const Shape& output, int64_t batch);

// INVALID_ARGUMENT naming the loss and the output that it does not fit.
absl::Status CheckOutput(const LossSpec& loss, const Shape& output);

// What a data set offers as targets.
struct TargetsInfo {
  int64_t num_targets = 1;       // floats per example
  int64_t num_classes = 0;       // of class indices; 0 where targets are none
  int64_t position_classes = 0;  // the same of several integers per example, which may be class indices
  Shape shape{};                 // of one example's target; rank 0 and 1: flat, of num_targets
};
// INVALID_ARGUMENT naming the loss, the model's output and what the data set has instead of what it needs.
absl::Status CheckTargets(const LossSpec& loss, const Shape& output, const TargetsInfo& data);

// The fault in the target of one example, such as "is -1; BinaryCrossentropy admits 0 to 1"; empty if the
// loss admits the target. CheckTargets() checks class indices.
std::string TargetFault(const LossSpec& loss, absl::Span<const float> target);
// A remark in the same form on a target that the loss admits but that is odd: shares of categorical cross
// entropy that do not add up to 1. `width`: the number of classes.
std::string TargetOddity(const LossSpec& loss, int64_t width, absl::Span<const float> target);

}  // namespace cairn::nn

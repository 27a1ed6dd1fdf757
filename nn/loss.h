// The objective of training: a loss by Keras' name, and whether it fits a model and a data set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "kernels/ops.h"
#include "nn/layer/compile_config.h"

namespace cairn::nn {

// A loss of Keras or of keras_cv, or InBatchSoftmax for retrieval, reduced to the mean over the batch's examples.
// Options that `kind` lacks keep their defaults.
struct LossSpec {
  kernels::LossKind kind = kernels::LossKind::kSparseCategoricalCrossentropy;
  bool from_logits = false;    // false: outputs are probabilities, clipped to [1e-7, 1 - 1e-7]
  double label_smoothing = 0;  // in [0, 1]
  double delta = 1;            // above 0
  double temperature = 1;      // above 0
  bool sampling_probability = false;
  std::optional<int64_t> ignore_class{};  // rows with this label are left out
  // Options of focal losses.
  double gamma = 2, alpha = 0.25;
  std::vector<float> class_alphas{};  // one for each class, in the place of `alpha`; may be empty
  bool balanced = false;
  // Options of losses of boxes.
  kernels::BoxFormat box_format = kernels::BoxFormat::kXyxy;
  kernels::IouMode iou_mode = kernels::IouMode::kLinear;
};

// Parses compile_config's loss, or KerasObject{name} for a name from a flag. Accepts Keras' class names
// ("MeanSquaredError"), function names ("mean_squared_error") and short names ("mse"), in any case.
// INVALID_ARGUMENT for an unsupported loss, listing the supported ones, and for options of Keras that are not
// supported.
absl::StatusOr<LossSpec> ParseLoss(const KerasObject& loss);

// "SparseCategoricalCrossentropy"
absl::string_view ClassName(kernels::LossKind kind);
// True for the cross entropies, whose outputs are scores of classes.
bool IsClassification(kernels::LossKind kind);

// The loss for `batch` examples. `output` [..., width] is the model's output shape, without the batch. A row
// is one combination of indices on all axes but the last.
kernels::LossParams MakeLossParams(const LossSpec& loss, const Shape& output, int64_t batch);

// INVALID_ARGUMENT naming the loss and the output if they do not fit.
absl::Status CheckOutput(const LossSpec& loss, const Shape& output);

// The targets of a data set.
struct TargetsInfo {
  int64_t num_targets = 1;  // floats per example
  int64_t num_classes = 0;  // number of class indices; 0 if targets are not class indices
  // Like num_classes, for targets that are several integers per example, which may be class indices.
  int64_t position_classes = 0;
  Shape shape{};  // one example's target; rank 0 and 1: flat, with num_targets elements
};
// INVALID_ARGUMENT if the data set's targets do not fit. The message names the loss, the model's output, the
// targets that are needed and the targets that the data set has.
absl::Status CheckTargets(const LossSpec& loss, const Shape& output, const TargetsInfo& data);

// Whether the loss leaves out a row with this target.
bool IsIgnored(const LossSpec& loss, float target);
// The fault of one example's target, such as "is -1; BinaryCrossentropy admits 0 to 1"; empty if the
// loss admits the target. CheckTargets() checks class indices.
std::string TargetFault(const LossSpec& loss, absl::Span<const float> target);
// Returns a remark, in the form of TargetFault(), if the loss admits the target but the target is unusual:
// its shares for a categorical cross entropy do not add up to 1. `width`: the number of classes.
std::string TargetOddity(const LossSpec& loss, int64_t width, absl::Span<const float> target);

}  // namespace cairn::nn

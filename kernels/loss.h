// The losses, and their gradients with respect to the outputs of a network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace cairn::kernels {

// The losses of Keras 3 (keras/src/losses/losses.py). The cross entropies take probabilities, or logits with
// `from_logits`.
enum class LossKind {
  kSparseCategoricalCrossentropy,  // targets are class indices
  kCategoricalCrossentropy,        // targets are a weight for each class, usually one-hot
  kBinaryCrossentropy,             // each output is an independent class with target 0 or 1
  kMeanSquaredError,
  kMeanAbsoluteError,
  kHuber,
  // For retrieval. An output is the embedding of a query, then that of its item; the target is the item's class index.
  // The scores of a query are its dot products with the items of the batch, and its loss is the sparse categorical
  // cross entropy of these logits, where its own item is the label. Examples of an equal target are left out.
  kInBatchSoftmax,
  // Cross entropies whose terms are multiplied by (1 - p)^gamma, where p is the probability of the target (Lin et al.,
  // "Focal Loss for Dense Object Detection", 2017, section 3).
  kCategoricalFocalCrossentropy,
  kBinaryFocalCrossentropy,
  // Losses of boxes: a row of 4 outputs is a box, and so is its target. See box_loss.h.
  kIou,
  kGiou,
  kCiou,
};

// Whether a target is one class index for each row of the output.
constexpr bool TakesClassIndices(LossKind kind) {
  return kind == LossKind::kSparseCategoricalCrossentropy || kind == LossKind::kInBatchSoftmax;
}
// Whether each output is the score of an independent class.
constexpr bool IsBinary(LossKind kind) {
  return kind == LossKind::kBinaryCrossentropy || kind == LossKind::kBinaryFocalCrossentropy;
}
// Whether a target is a share for each class, usually one-hot.
constexpr bool TakesShares(LossKind kind) {
  return kind == LossKind::kCategoricalCrossentropy || kind == LossKind::kCategoricalFocalCrossentropy;
}
constexpr bool IsOfBoxes(LossKind kind) {
  return kind == LossKind::kIou || kind == LossKind::kGiou || kind == LossKind::kCiou;
}
// Whether a row of outputs has one term; otherwise each output has one.
constexpr bool HasOneTermPerRow(LossKind kind) {
  return TakesClassIndices(kind) || TakesShares(kind) || IsOfBoxes(kind);
}

// The four numbers of a box: corners, or x and y of one corner or the center, then width and height.
enum class BoxFormat { kXyxy, kYxyx, kXywh, kCenterXywh, kCenterYxhw };
// The loss of the intersection over union: 1 - iou, 1 - iou^2 or -log(iou).
enum class IouMode { kLinear, kQuadratic, kLog };

// A loss of outputs [batch, rows_per_example, width], row-major.
struct LossParams {
  LossKind kind = LossKind::kSparseCategoricalCrossentropy;
  int64_t batch = 0;
  // The number of examples over which the loss is averaged; the batch may contain only some of them. 0: the
  // number of examples in the batch.
  int64_t mean_over = 0;
  int64_t rows_per_example = 1;  // 1 for outputs [batch, width]; the pixels of a segmented image
  int64_t width = 0;
  bool from_logits = false;
  double label_smoothing = 0;  // in [0, 1]; categorical and binary, focal or not
  double delta = 1;            // Huber: the error at which it becomes linear
  // In-batch softmax: the divisor of scores, above 0; whether the last output is the item's sampling probability, whose
  // logarithm is subtracted from its scores (Yi et al., "Sampling-bias-corrected neural modeling", 2019).
  double temperature = 1;
  bool sampling_probability = false;
  // Focal: the exponent, from 0 up; the factor of each term, which of a binary loss is `alpha` for the target 1 and
  // 1 - `alpha` for 0, and 1 without `balanced`. A categorical loss may have a factor for each class, [width], instead.
  double gamma = 2, alpha = 0.25;
  std::vector<float> class_alphas{};
  bool balanced = false;
  BoxFormat box_format = BoxFormat::kXyxy;
  IouMode iou_mode = IouMode::kLinear;  // kIou
  double weight = 1;  // multiplies the gradient, not the sums; of one of several losses of a network
  // Floats between the outputs, the targets or the weights of an example and those of the next. 0: they are adjacent.
  // Larger than one example's if the loss takes some of an example's outputs.
  int64_t output_stride = 0, target_stride = 0, weight_stride = 0;
  // The loss is the mean over the rows of this batch that are not left out (Keras' apply_mask()); others have no loss
  // and a gradient of 0. `masked`: a number for each row follows each example's outputs, 0 for a row to leave out, and
  // output_stride counts it.
  bool masked = false;
  // Weights are [batch, rows_per_example], one for each row, and not [batch].
  bool row_weights = false;
  // Sparse categorical: leaves out rows with this label, which may be any number.
  std::optional<int64_t> ignore_class{};

  bool leaves_out_rows() const { return masked || ignore_class.has_value(); }
  int64_t outputs_per_example() const { return rows_per_example * width; }
  // Floats per example's target: a class index for each row, or one float for each output.
  int64_t targets_per_example() const {
    return TakesClassIndices(kind) ? rows_per_example : outputs_per_example();
  }
  int64_t weights_per_example() const { return row_weights ? rows_per_example : 1; }
  // A gradient is divided by this.
  int64_t terms() const { return (mean_over > 0 ? mean_over : batch) * terms_per_example(); }
  // The loss of an example is the sum of its terms divided by this.
  int64_t terms_per_example() const {
    return HasOneTermPerRow(kind) ? rows_per_example : outputs_per_example();
  }
};

// INVALID_ARGUMENT for extents below 1, options out of range, and more classes than a float can count.
absl::Status Validate(const LossParams& params);
// The error of Loss::Run() for the `index`-th label of a batch.
absl::Status BadLabelError(const LossParams& params, int64_t index, float label);

// The contribution of one batch to an epoch's mean loss. Host memory.
struct LossSums {
  double loss = 0;  // sum over examples, each times its weight
  int64_t examples = 0;
};

class Loss {
 public:
  virtual ~Loss() = default;
  // `targets` is [batch, targets_per_example()]; `weights` is [batch, weights_per_example()], or null if every example
  // weighs 1. An example's loss is the mean over its rows, each times its weight, and, unless HasOneTermPerRow(), over
  // a row's outputs. `sums` is written in host memory by the next Synchronize(). `doutputs`, with the shape and the
  // stride of the outputs, is the gradient of (sum of weight * loss) / mean_over, times LossParams::weight: Keras'
  // sum_over_batch_size divides by the number of examples, not by their weights. It is null in evaluation; places of a
  // mask are not written. INVALID_ARGUMENT names the label and its example if a class index is not a whole number or
  // out of range.
  virtual absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                           float* doutputs) = 0;
};

}  // namespace cairn::kernels

// The contract of every operation, the same for all backends.
//
// An op is made once for fixed shapes (a descriptor, a primitive, a workspace) and then run many times;
// running allocates nothing. Making an op tells which layout it wants to write: the output of one is the
// input of the next, so a chain of ops keeps its preferred layout end to end and only the edges are
// row-major.
//
// All pointers are device memory, floats unless said otherwise, and never alias unless said so. Outputs are
// overwritten, not added to. Weights and their gradients are always row-major in Keras' shapes, whatever the
// activations' layout. A gradient with respect to an activation has the layout of that activation.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace cairn::kernels {

enum class Activation { kLinear, kRelu };
enum class Padding { kValid, kSame };

struct Conv2DParams {
  TensorDesc input;  // [n, h, w, c], any layout
  int64_t filters = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  Padding padding = Padding::kValid;
  bool use_bias = true;
  Activation activation = Activation::kLinear;  // fused
  bool needs_input_gradient = true;             // false for the first layer: nothing is computed
};

class Conv2D {
 public:
  virtual ~Conv2D() = default;
  virtual const TensorDesc& output() const = 0;  // [n, oh, ow, filters]
  // y = activation(conv(x, kernel) + bias). kernel [kh, kw, c, filters], bias [filters] or null.
  virtual absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) = 0;
  // dy is the gradient of y and may be overwritten. dx is null when not needed, dbias when there is no bias.
  virtual absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                float* dkernel, float* dbias) = 0;
};

struct MaxPool2DParams {
  TensorDesc input;  // [n, h, w, c], any layout
  int64_t pool_height = 2, pool_width = 2;
  int64_t stride_height = 2, stride_width = 2;
  Padding padding = Padding::kValid;
};

class MaxPool2D {
 public:
  virtual ~MaxPool2D() = default;
  virtual const TensorDesc& output() const = 0;
  // Remembers where the maxima were for the Backward that follows.
  virtual absl::Status Forward(const float* x, float* y) = 0;
  virtual absl::Status Backward(const float* dy, float* dx) = 0;
};

struct DenseParams {
  TensorDesc input;  // [n, inputs], row-major
  int64_t units = 0;
  bool use_bias = true;
  Activation activation = Activation::kLinear;  // fused
  bool needs_input_gradient = true;
};

class Dense {
 public:
  virtual ~Dense() = default;
  virtual const TensorDesc& output() const = 0;  // [n, units], row-major
  // y = activation(x * kernel + bias). kernel [inputs, units], bias [units] or null.
  virtual absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) = 0;
  virtual absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                float* dkernel, float* dbias) = 0;
};

// Copies an activation from one layout to another.
class Reorder {
 public:
  virtual ~Reorder() = default;
  virtual absl::Status Run(const float* from, float* to) = 0;
};

// Softmax over the last axis of a row-major [n, classes].
class Softmax {
 public:
  virtual ~Softmax() = default;
  virtual absl::Status Forward(const float* x, float* y) = 0;
  virtual absl::Status Backward(const float* y, const float* dy, float* dx) = 0;
};

// Keras 3's losses (keras/src/losses/losses.py). The cross entropies take probabilities, or logits with
// `from_logits`.
enum class LossKind {
  kSparseCategoricalCrossentropy,  // targets are class indices
  kCategoricalCrossentropy,        // targets are a share for each class, as a rule one-hot
  kBinaryCrossentropy,             // each output is a class of its own, its target 0 or 1
  kMeanSquaredError,
  kMeanAbsoluteError,
  kHuber,
};

// A loss of outputs [batch, rows_per_example, width], row-major.
struct LossParams {
  LossKind kind = LossKind::kSparseCategoricalCrossentropy;
  int64_t batch = 0;
  int64_t rows_per_example = 1;  // 1 for outputs [batch, width]; the pixels of an image of classes
  int64_t width = 0;
  bool from_logits = false;
  double label_smoothing = 0;  // in [0, 1]; categorical and binary
  double delta = 1;            // Huber: where the parabola ends

  // Floats of one example's target: a class index for each row, or one float for each output.
  int64_t targets_per_example() const {
    return kind == LossKind::kSparseCategoricalCrossentropy ? rows_per_example : rows_per_example * width;
  }
};

// INVALID_ARGUMENT for extents below 1, options out of range, and more classes than a float counts.
absl::Status Validate(const LossParams& params);

// What one batch adds to the sum that an epoch's mean loss is made of. Host memory.
struct LossSums {
  double loss = 0;  // sum over examples, each times its weight
  int64_t examples = 0;
};

class Loss {
 public:
  virtual ~Loss() = default;
  // `targets` [batch, targets_per_example()]; `weights` [batch], or null where every example weighs 1. An
  // example's loss is the mean over its rows, and over a row's outputs for all but the categorical losses.
  // Writes to the host's `sums` by the next Synchronize(). `doutputs`, of the outputs' shape, is the gradient
  // of (sum of weight * loss) / batch: Keras' sum_over_batch_size divides by the examples, not by their
  // weights. Null in evaluation. INVALID_ARGUMENT naming the label and its example when a class index is no
  // whole number or out of range.
  virtual absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                           float* doutputs) = 0;
};

class OpFactory {
 public:
  virtual ~OpFactory() = default;
  // Each refuses, with INVALID_ARGUMENT, shapes that make no sense, and with UNIMPLEMENTED what the backend
  // lacks.
  virtual absl::StatusOr<std::unique_ptr<Conv2D>> MakeConv2D(const Conv2DParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<MaxPool2D>> MakeMaxPool2D(const MaxPool2DParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Dense>> MakeDense(const DenseParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(const TensorDesc& from,
                                                               const TensorDesc& to) = 0;
  virtual absl::StatusOr<std::unique_ptr<Softmax>> MakeSoftmax(int64_t batch, int64_t classes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params) = 0;
};

}  // namespace cairn::kernels

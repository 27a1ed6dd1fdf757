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

// Cross entropy of integer labels against logits or probabilities [batch, classes], row-major.
struct SparseCrossEntropyParams {
  int64_t batch = 0, classes = 0;
  bool from_logits = true;
};

// What one batch adds to the sums that an epoch's mean loss and accuracy are made of. Host memory.
struct LossSums {
  double loss = 0;      // sum over examples
  int64_t correct = 0;  // examples whose largest output is the label's (the first of equals)
  int64_t examples = 0;
};

class SparseCrossEntropy {
 public:
  virtual ~SparseCrossEntropy() = default;
  // `labels` [batch] int32, device memory, each in [0, classes). Writes to the host's `sums` by the next
  // Synchronize(). `doutputs` [batch, classes]: the gradient of the *mean* loss over the batch (Keras'
  // sum_over_batch_size); null in evaluation. INVALID_ARGUMENT when a label is out of range.
  virtual absl::Status Run(const float* outputs, const int32_t* labels, LossSums* sums, float* doutputs) = 0;
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
  virtual absl::StatusOr<std::unique_ptr<SparseCrossEntropy>> MakeSparseCrossEntropy(
      const SparseCrossEntropyParams& params) = 0;
};

}  // namespace cairn::kernels

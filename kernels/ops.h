// The contract of every operation, the same for all backends.
//
// An op is made once for fixed shapes (a descriptor, a primitive, a workspace) and then run many times;
// running allocates nothing. Making an op tells which layout it wants to write: the output of one is the
// input of the next, so a chain of ops keeps its preferred layout end to end and only the edges are
// row-major.
//
// All pointers are device memory and never alias unless said so. Outputs are overwritten, not added to.
// Weights and their gradients are always float32 and row-major in Keras' shapes, whatever the activations'
// layout. An activation lies as its TensorDesc says, in elements of that type, though the pointer says float;
// the gradient with respect to it likewise. Linear maps take activations of any type and write the device's
// own; other ops write the type that they read.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"

namespace cairn::kernels {

// Element-wise functions, with Keras' meanings.
enum class Activation {
  kLinear,
  kRelu,  // with `slope`, `limit` and `threshold`: ReLU, LeakyReLU, relu6
  kElu,   // slope * (exp(x) - 1) below 0
  kSelu,
  kSigmoid,
  kTanh,
  kSoftplus,
  kSilu,
  kGelu,      // exact: x Phi(x)
  kGeluTanh,  // its approximation
};

struct ActivationParams {
  Activation kind = Activation::kLinear;
  float slope = 0;                                       // kRelu: below the threshold; kElu: alpha
  float limit = std::numeric_limits<float>::infinity();  // kRelu: the largest output
  float threshold = 0;                                   // kRelu: smaller inputs are cut

  // max(x, 0), which convolutions and dense layers compute on the way out.
  bool is_plain_relu() const;
  // f(0) = 0, so that padding channels stay 0.
  bool keeps_zero() const;
};

enum class Padding { kValid, kSame };

// --- Linear maps with weights ---

// y = activation(map(x, kernel) + bias).
class LinearOp {
 public:
  virtual ~LinearOp() = default;
  virtual const TensorDesc& output() const = 0;
  // bias [channels out] or null.
  virtual absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) = 0;
  // dy is the gradient of y and may be overwritten. dx is null when not needed, dbias when there is no bias.
  virtual absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                float* dkernel, float* dbias) = 0;
  // Whether dx is a pass of its own: then Backward() may be told that it is not needed, and BackwardInput()
  // computes it from the dy that Backward() has left, so that the others can be used meanwhile.
  virtual bool splits_backward() const { return false; }
  virtual absl::Status BackwardInput(const float* /*kernel*/, const float* /*dy*/, float* /*dx*/) {
    return absl::UnimplementedError("the gradient of the input is no pass of its own");
  }
};

// kernel [kh, kw, c / groups, filters]. Depthwise: groups = c, and the kernel [kh, kw, c, multiplier] is the
// same memory.
struct Conv2DParams {
  TensorDesc input;  // [n, h, w, c], any layout
  int64_t filters = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t groups = 1;
  Padding padding = Padding::kValid;
  bool use_bias = true;
  bool relu = false;                 // fused
  bool needs_input_gradient = true;  // false for the first layer: nothing is computed
  // Fused behind the relu: the largest of windows that lie side by side, as far as they fit. 0: no pooling.
  int64_t pool_height = 0, pool_width = 0;
};

// The transpose of a convolution from [n, oh, ow, filters] to the input: kernel [kh, kw, filters, c]. Output
// extents: input * stride, and for kValid max(kernel - stride, 0) more.
struct Conv2DTransposeParams {
  TensorDesc input;  // [n, h, w, c], any layout
  int64_t filters = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  Padding padding = Padding::kValid;
  bool use_bias = true;
  bool needs_input_gradient = true;
};

// kernel [inputs, units].
struct DenseParams {
  TensorDesc input;  // [n, inputs], row-major
  int64_t units = 0;
  bool use_bias = true;
  bool relu = false;  // fused
  bool needs_input_gradient = true;
};

// Rows of a table: x holds `indices` row numbers as floats, the kernel is the table [rows, width]. There is
// no bias and no dx. INVALID_ARGUMENT from Forward, or from the next Synchronize(), names an index that is
// not in [0, rows).
struct EmbeddingParams {
  int64_t indices = 0, rows = 0, width = 0;
  std::string what{};  // "layer 'words'": what an error names that Synchronize() tells
};

// --- One input, no weights ---

class UnaryOp {
 public:
  virtual ~UnaryOp() = default;
  virtual const TensorDesc& output() const = 0;
  // May remember what the Backward that follows needs.
  virtual absl::Status Forward(const float* x, float* y) = 0;
  virtual absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) = 0;
};

enum class Pooling { kMax, kAverage };

// Average: over the part of the window that is inside the image.
struct Pool2DParams {
  Pooling pooling = Pooling::kMax;
  TensorDesc input;  // [n, h, w, c], any layout; the output has the same
  int64_t pool_height = 2, pool_width = 2;
  int64_t stride_height = 2, stride_width = 2;
  Padding padding = Padding::kValid;
};

struct ZeroPad2DParams {
  TensorDesc input;  // [n, h, w, c], any layout; the output has the same
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// y = x * scale + offset; each of one value, or one per element of the last axis.
struct AffineParams {
  TensorDesc input;  // row-major
  std::vector<float> scale, offset;
};

// y = (x - mean) / max(sqrt(variance), epsilon), or with `invert` y = x * max(sqrt(variance), epsilon) +
// mean: Keras' Normalization, by statistics that are variables.
struct StandardizeParams {
  TensorDesc input;  // row-major
  int64_t width =
      1;  // the last `width` elements of x have a mean and a variance each; it divides their number
  float epsilon = 1e-7f;
  bool invert = false;
};

class Standardize {
 public:
  virtual ~Standardize() = default;
  virtual const TensorDesc& output() const = 0;
  // mean and variance [width], constants as far as gradients go.
  virtual absl::Status Forward(const float* x, const float* mean, const float* variance, float* y) = 0;
  virtual absl::Status Backward(const float* variance, const float* dy, float* dx) = 0;
};

// --- Several inputs ---

class NaryOp {
 public:
  virtual ~NaryOp() = default;
  virtual const TensorDesc& output() const = 0;
  virtual absl::Status Forward(absl::Span<const float* const> xs, float* y) = 0;
  // Each of `dxs` is null when not needed.
  virtual absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                                absl::Span<float* const> dxs) = 0;
};

enum class MergeKind { kAdd, kSubtract, kMultiply, kAverage, kMaximum, kMinimum };

// y = x0 op x1 op ... of inputs of one rank that are broadcast to one shape: along each axis their extents
// are equal or 1. Gradients are summed over what an input was repeated to; that of a maximum or minimum goes
// to the first of equals. NaN in any input is NaN in y.
struct MergeParams {
  MergeKind kind = MergeKind::kAdd;
  std::vector<TensorDesc> inputs;  // 2 to 32, of kSubtract 2; row-major, of one type
};

// --- Normalization ---

// Over all axes but the last (channels). gamma and beta [channels], or null: 1 and 0.
struct BatchNormParams {
  TensorDesc input;  // any layout; any rank of at least 2 where row-major
  float epsilon = 1e-3f;
  bool scale = true, center = true;
  bool frozen = false;  // Backward is of Infer: mean and variance do not depend on x
};

class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  virtual const TensorDesc& output() const = 0;
  // Normalizes by the batch's own mean and biased variance, and writes them [channels].
  virtual absl::Status Forward(const float* x, const float* gamma, const float* beta, float* mean,
                               float* variance, float* y) = 0;
  // Normalizes by the given ones.
  virtual absl::Status Infer(const float* x, const float* gamma, const float* beta, const float* mean,
                             const float* variance, float* y) = 0;
  // mean and variance as Forward wrote them. dgamma and dbeta are written where the op has them.
  virtual absl::Status Backward(const float* x, const float* gamma, const float* mean, const float* variance,
                                const float* dy, float* dx, float* dgamma, float* dbeta) = 0;
};

// Over the last axis. gamma and beta [width], or null: 1 and 0.
struct LayerNormParams {
  int64_t rows = 0, width = 0;
  ElementType type = ElementType::kFloat32;  // of x and y
  float epsilon = 1e-3f;
  bool scale = true, center = true;
};

class LayerNorm {
 public:
  virtual ~LayerNorm() = default;
  // Remembers each row's mean and deviation for the Backward that follows.
  virtual absl::Status Forward(const float* x, const float* gamma, const float* beta, float* y) = 0;
  virtual absl::Status Backward(const float* x, const float* gamma, const float* dy, float* dx, float* dgamma,
                                float* dbeta) = 0;
};

// --- Training only ---

// Inverted dropout: y = x / (1 - rate) with probability 1 - rate, else 0. Which, depends on the device's seed
// and first example (SeedRandom), the op's stream and the element's place alone.
struct DropoutParams {
  TensorDesc input;  // batch first, any layout
  float rate = 0;    // in [0, 1)
  uint64_t stream = 0;
};

class Dropout {
 public:
  virtual ~Dropout() = default;
  virtual absl::Status Forward(const float* x, float* y) = 0;
  // With the choice of the last Forward.
  virtual absl::Status Backward(const float* dy, float* dx) = 0;
};

// A penalty on a variable: l1 sum |w| + l2 sum w^2.
class Regularizer {
 public:
  virtual ~Regularizer() = default;
  // Adds the penalty's gradient to `gradient`, unless that is null, and writes the penalty to the host's
  // `penalty` by the next Synchronize().
  virtual absl::Status Run(const float* w, float* gradient, double* penalty) = 0;
};

// Loss scaling (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2): gradients on their way
// through float16 are multiplied by a factor, so that the small ones do not fall to 0, and divided by it at
// the end.
struct LossScalerParams {
  int64_t outputs = 0;  // of the network, the batch included
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<Range> gradients;  // in the flat vector; what else lies there came another way
};

class LossScaler {
 public:
  virtual ~LossScaler() = default;
  // The factor of what is run from here on. Not within a recording.
  virtual absl::Status SetScale(float scale) = 0;
  virtual absl::Status Scale(float* doutputs) = 0;
  // Writes to the host's `finite` by the next Synchronize() whether all are finite numbers.
  virtual absl::Status Unscale(float* gradients, bool* finite) = 0;
};

// --- Layouts ---

// Copies an activation from one layout, or one type, to another.
class Reorder {
 public:
  virtual ~Reorder() = default;
  virtual absl::Status Run(const float* from, float* to) = 0;
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
  int64_t mean_over = 0;         // examples that the mean is over, of which the batch is a part; 0: the batch
  int64_t rows_per_example = 1;  // 1 for outputs [batch, width]; the pixels of an image of classes
  int64_t width = 0;
  bool from_logits = false;
  double label_smoothing = 0;  // in [0, 1]; categorical and binary
  double delta = 1;            // Huber: where the parabola ends

  // Floats of one example's target: a class index for each row, or one float for each output.
  int64_t targets_per_example() const {
    return kind == LossKind::kSparseCategoricalCrossentropy ? rows_per_example : rows_per_example * width;
  }
  // What a gradient is divided by.
  int64_t terms() const { return (mean_over > 0 ? mean_over : batch) * terms_per_example(); }
  // What the sum of an example's terms is divided by to be its loss.
  int64_t terms_per_example() const {
    const bool categorical =
        kind == LossKind::kSparseCategoricalCrossentropy || kind == LossKind::kCategoricalCrossentropy;
    return categorical ? rows_per_example : rows_per_example * width;
  }
};

// INVALID_ARGUMENT for extents below 1, options out of range, and more classes than a float counts.
absl::Status Validate(const LossParams& params);
// The error that Loss::Run() speaks of: of the `index`-th label of a batch.
absl::Status BadLabelError(const LossParams& params, int64_t index, float label);

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
  // of (sum of weight * loss) / mean_over: Keras' sum_over_batch_size divides by the examples, not by their
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
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(const Conv2DParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(
      const Conv2DTransposeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(const DenseParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(const EmbeddingParams& params) = 0;

  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(const TensorDesc& input,
                                                                  const ActivationParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(const AffineParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(const StandardizeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(const Pool2DParams& params) = 0;
  // [n, h, w, c], any layout, to [n, c].
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Pooling pooling,
                                                                  const TensorDesc& input) = 0;
  // Over the last axis of a row-major tensor.
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(const TensorDesc& input) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(const ZeroPad2DParams& params) = 0;

  // Of inputs of one shape and layout. Add's y may be its first x.
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(const TensorDesc& input, int inputs) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(const TensorDesc& input, int inputs) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(const MergeParams& params) = 0;
  // Along `axis`, of inputs that agree in the other extents; row-major, or of one blocked layout along the
  // channels where each but the last fills its blocks.
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(absl::Span<const TensorDesc> inputs,
                                                                  int axis) = 0;

  virtual absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(const BatchNormParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(const LayerNormParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(const DropoutParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(int64_t elements, float l1,
                                                                       float l2) = 0;

  // Where the device's own type is float16.
  virtual absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(const LossScalerParams& params) = 0;

  virtual absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(const TensorDesc& from,
                                                               const TensorDesc& to) = 0;
  virtual absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params) = 0;
};

}  // namespace cairn::kernels

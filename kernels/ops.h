// The contract of every operation, the same for all backends.
//
// An op is made once for fixed shapes (a descriptor, a primitive, a workspace) and then run many times;
// running allocates nothing. When an op is made it chooses the layout of its output, which is the input of
// the next op. So a chain of ops keeps its preferred layout, and only the edges of a network are row-major.
//
// All pointers are device memory and do not alias, except where a comment allows it. Outputs are overwritten,
// not added to. Weights and their gradients are always float32 and row-major in Keras' shapes, whatever the
// activations' layout. An activation, and the gradient with respect to it, has the layout and element type of
// its TensorDesc, although the pointer's type is float. Linear maps accept activations of any type and write
// the device's own; other ops write the type that they read.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/bag_pool.h"
#include "kernels/device.h"
#include "kernels/loss.h"
#include "kernels/recurrence.h"

namespace cairn::kernels {

enum class Padding { kValid, kSame };

// --- Linear maps with weights ---

// y = activation(map(x, kernel) + bias).
class LinearOp {
 public:
  virtual ~LinearOp() = default;
  virtual const TensorDesc& output() const = 0;
  // bias is [channels out], or null.
  virtual absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) = 0;
  // x and y: those of the last Forward(). dy is the gradient of y and may be overwritten. dx is null if it is not
  // needed, dbias if there is no bias.
  virtual absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                                float* dkernel, float* dbias) = 0;
  // Whether dx can be computed separately. If so, Backward() may be called without dx, and BackwardInput()
  // computes it later from the dy that Backward() has left, so that the other gradients can be used in the
  // meantime.
  virtual bool splits_backward() const { return false; }
  virtual absl::Status BackwardInput(const float* /*kernel*/, const float* /*dy*/, float* /*dx*/) {
    return absl::UnimplementedError("the gradient of the input is not computed separately");
  }
};

// The kernel is [kh, kw, c / groups, filters]. In a depthwise convolution groups = c, and the kernel [kh, kw,
// c, multiplier] is the same memory.
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
  bool needs_input_gradient = true;  // false for the first layer: dx is not computed
  // Max pooling fused after the relu, with adjacent windows as far as they fit. 0: no pooling.
  int64_t pool_height = 0, pool_width = 0;
};

// The transpose of a convolution that maps [n, oh, ow, filters] to the input; the kernel is [kh, kw, filters,
// c]. Output extents are input * stride, plus max(kernel - stride, 0) for kValid.
struct Conv2DTransposeParams {
  TensorDesc input;  // [n, h, w, c], any layout
  int64_t filters = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  Padding padding = Padding::kValid;
  bool use_bias = true;
  bool needs_input_gradient = true;
};

// The kernel is [inputs, units] or, if it is `transposed`, [units, inputs].
struct DenseParams {
  TensorDesc input;  // [n, inputs], row-major
  int64_t units = 0;
  bool use_bias = true;
  bool relu = false;  // fused
  bool needs_input_gradient = true;
  bool transposed = false;
};

// Rows of a table: x contains `indices` row numbers of type `index_type`, which is an integer type or float32; the
// kernel is the table [rows, width]. There is no bias and no dx. INVALID_ARGUMENT, from Forward or the next
// Synchronize(), names an index outside [0, rows).
struct EmbeddingParams {
  int64_t indices = 0, rows = 0, width = 0;
  ElementType index_type = ElementType::kFloat32;
  // Instead of one row, each of the `indices` rows of y is the mean of several rows of the table. x is a ragged
  // tensor in one piece of memory of RaggedFloats(): `indices` + 1 row splits from 0 on, then fewer than 2^32 row
  // numbers, all int64, and as much room again, which the op may write if the device has its own memory.
  // The mean of no rows is 0.
  bool ragged_mean = false;
  std::string what{};  // "layer 'words'": appears in the error that Synchronize() returns
};

// Vectors y [rows, depth] that count the ids of each row: x contains `ids` ids of a row, of type `id_type`, which is an
// integer type or float32. With `weighted`, a second x has a float32 weight for each id. There is no gradient.
// INVALID_ARGUMENT, from Forward or the next Synchronize(), names an id outside [0, depth).
struct IdCountsParams {
  int64_t rows = 0, ids = 0, depth = 0;
  ElementType id_type = ElementType::kInt64;
  bool ragged = false;          // x is in memory as `ragged_mean` describes for `rows`; `ids` is unused
  bool weighted = false;        // y sums up the weights, instead of 1 for each id
  bool once = false;            // an id counts once in a row
  bool skips_negative = false;  // negative ids are not counted, and no error
  std::string what{};           // as in EmbeddingParams
};

// The memory of x for `ragged_mean`, in units of a float.
constexpr int64_t RaggedFloats(int64_t rows, int64_t row_numbers) {
  return (rows + 1 + 2 * row_numbers) * int64_t{sizeof(int64_t) / sizeof(float)};
}

// --- One input, no weights ---

class UnaryOp {
 public:
  virtual ~UnaryOp() = default;
  virtual const TensorDesc& output() const = 0;
  // May store what the next Backward needs.
  virtual absl::Status Forward(const float* x, float* y) = 0;
  virtual absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) = 0;
};

// Dot products of pairs of an example's rows: x is [n, rows, width], row-major, and y [n, p] = sum_k x[n, i, k]
// x[n, j, k] for the p-th pair (i, j).
struct PairDotsParams {
  TensorDesc input;
  // The pairs (i, j) with j < i, in the order of i, then j. Above 0: the pairs with i < first_rows <= j, and y is
  // [n, first_rows, rows - first_rows].
  int64_t first_rows = 0;
  // Without first_rows: also the pairs (i, i).
  bool self = false;
  // Without first_rows: y is [n, rows * rows], with 0 where there is no pair.
  bool square = false;
  // Each row is divided by its L2 norm, which counts as at least 1e-7. With first_rows or self.
  bool normalize = false;
};

// Rotary position embeddings (Su et al., "RoFormer", 2021): at step s, the i-th frequency f rotates the elements i and
// i + width / 2 of each vector by the angle s f. y may be x, and dx may be dy.
struct RotaryParams {
  TensorDesc input;                 // [n, steps, ..., width], row-major
  std::vector<double> frequencies;  // [width / 2]
  // Null: the steps are 0, 1, ... Otherwise they are *first, *first + 1, ..., below `steps`; host memory, read at each
  // call.
  const int64_t* first = nullptr;
  int64_t steps = 0;
};

enum class Pooling { kMax, kAverage, kSum };

// Max or average pooling, not kSum. The average is over the part of the window inside the image.
struct Pool2DParams {
  Pooling pooling = Pooling::kMax;
  TensorDesc input;  // [n, h, w, c], any layout; the output has the same layout
  int64_t pool_height = 2, pool_width = 2;
  int64_t stride_height = 2, stride_width = 2;
  Padding padding = Padding::kValid;
};

// Repeats every pixel `height` times down and `width` times across. kBilinear interpolates between the centers
// of pixels instead, as Keras' UpSampling2D.
enum class Interpolation { kNearest, kBilinear };
struct Upsample2DParams {
  TensorDesc input;  // [n, h, w, c], any layout; the output has the same layout
  int64_t height = 1, width = 1;
  Interpolation interpolation = Interpolation::kNearest;
};

// y has the axes of x in another order: axis i of y is axis `axes[i]` of x. Both may be variables.
struct TransposeParams {
  TensorDesc input;  // row-major
  std::vector<int> axes;
};

// The windows of a convolution of volumes along the depth: y [n, windows, places, window * c] has x[n, o * stride + k *
// dilation - padding, place, c] at [n, o, place, (k, c)], and 0 where that is outside the volume.
struct DepthWindowsParams {
  TensorDesc input;  // [n, depth, places, c], row-major
  int64_t window = 1, stride = 1, dilation = 1;
  Padding padding = Padding::kValid;
};

struct ZeroPad2DParams {
  TensorDesc input;  // [n, h, w, c], any layout; the output has the same layout
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// y = x * scale + offset, each with one value, or with one per element of the last axis.
struct AffineParams {
  TensorDesc input;  // row-major
  std::vector<float> scale, offset;
};

// y = (x - mean) / max(sqrt(variance), epsilon), or with `invert` y = x * max(sqrt(variance), epsilon) +
// mean: Keras' Normalization, with statistics that are variables.
struct StandardizeParams {
  TensorDesc input;  // row-major
  // The number of means, and of variances: element i of x uses those with index i % width. Must divide the
  // number of elements of x.
  int64_t width = 1;
  float epsilon = 1e-7f;
  bool invert = false;
};

class Standardize {
 public:
  virtual ~Standardize() = default;
  virtual const TensorDesc& output() const = 0;
  // mean and variance are [width]; gradients treat them as constants.
  virtual absl::Status Forward(const float* x, const float* mean, const float* variance, float* y) = 0;
  virtual absl::Status Backward(const float* variance, const float* dy, float* dx) = 0;
};

// y [n, t, c] = x [n, 0, c] + ... + x [n, t, c].
struct CumulativeSumParams {
  TensorDesc input;  // [n, steps, c], row-major
};

// The mask of a sequence's steps: y [steps] = 1 if any element of x [steps, width] differs from `masked`, otherwise 0.
// y is plain float32, whatever the type of x, which may be an integer type. There is no gradient.
struct StepMaskParams {
  TensorDesc input;  // row-major
  float masked = 0;
};

// --- Several inputs ---

class NaryOp {
 public:
  virtual ~NaryOp() = default;
  virtual const TensorDesc& output() const = 0;
  virtual absl::Status Forward(absl::Span<const float* const> xs, float* y) = 0;
  // Each of `dxs` may be null if it is not needed.
  virtual absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                                absl::Span<float* const> dxs) = 0;
};

enum class MergeKind { kAdd, kSubtract, kMultiply, kAverage, kMaximum, kMinimum, kSelect };

// y = x0 op x1 op ..., with inputs of one rank broadcast to one shape: along each axis their extents are
// equal or 1. The gradient of a broadcast input is summed over its repetitions; the gradient of a maximum or
// minimum goes to the first of equal inputs. A NaN in any input gives NaN in y.
//
// kSelect: y = x1 where x0 is not 0, otherwise x2. x0 has a gradient of 0; a NaN in what is not selected has no
// effect.
struct MergeParams {
  MergeKind kind = MergeKind::kAdd;
  // 2 to 32, exactly 2 for kSubtract and 3 for kSelect, of one type and layout. Blocked images have one number of
  // channels.
  std::vector<TensorDesc> inputs;
};

enum class Comparison { kEqual, kNotEqual, kGreater, kGreaterEqual, kLess, kLessEqual, kAnd, kOr, kXor };

// y = 1 where `kind` holds for two inputs, which are broadcast like those of a merge, otherwise 0. y is plain float32.
// Two integers of any types are compared as integers, other pairs as float32, to which integers are rounded, as in
// Keras. In kAnd, kOr and kXor, an input holds if it is not 0. The gradients are 0.
struct ComparisonParams {
  Comparison kind = Comparison::kEqual;
  std::vector<TensorDesc> inputs{};  // 2, row-major
};

// The mean over the steps that a mask counts: x [n, steps, channels] and the mask [n, steps], plain float32 of 0 and 1,
// give y [n, channels]. Without such a step y is NaN, as in Keras. The mask has no gradient.
struct MaskedMeanParams {
  TensorDesc input;  // row-major
};

// --- Normalization ---

// Normalizes over all axes but the last (channels). gamma and beta are [channels], or null for 1 and 0.
struct BatchNormParams {
  TensorDesc input;  // any layout; any rank from 2 up if row-major
  float epsilon = 1e-3f;
  bool scale = true, center = true;
  bool frozen = false;  // Backward() differentiates Infer(): mean and variance are constants
};

class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  virtual const TensorDesc& output() const = 0;
  // Normalizes by the mean and biased variance of the batch, and writes them to mean and variance [channels].
  virtual absl::Status Forward(const float* x, const float* gamma, const float* beta, float* mean,
                               float* variance, float* y) = 0;
  // Normalizes by the given mean and variance.
  virtual absl::Status Infer(const float* x, const float* gamma, const float* beta, const float* mean,
                             const float* variance, float* y) = 0;
  // mean and variance: as Forward() wrote them. dgamma and dbeta are written if the op has gamma and beta.
  virtual absl::Status Backward(const float* x, const float* gamma, const float* mean, const float* variance,
                                const float* dy, float* dx, float* dgamma, float* dbeta) = 0;
};

// Divides by the L2 norm over the last axis, or by epsilon if that is larger.
struct UnitNormParams {
  TensorDesc input;  // row-major
  float epsilon = 1e-12f;
};

// Normalizes over the last axis. gamma and beta are [width], or null for 1 and 0.
struct LayerNormParams {
  int64_t rows = 0, width = 0;
  ElementType type = ElementType::kFloat32;  // the type of x and y
  float epsilon = 1e-3f;
  bool scale = true, center = true;
  bool rms = false;  // the mean counts as 0: y = gamma x / sqrt(mean(x^2) + epsilon) + beta
};

class LayerNorm {
 public:
  virtual ~LayerNorm() = default;
  // Stores each row's mean and deviation for the next Backward.
  virtual absl::Status Forward(const float* x, const float* gamma, const float* beta, float* y) = 0;
  virtual absl::Status Backward(const float* x, const float* gamma, const float* dy, float* dx, float* dgamma,
                                float* dbeta) = 0;
};

// --- Training only ---

// Inverted dropout: y = x / (1 - rate) with probability 1 - rate, otherwise 0. The choice depends only on the
// device's seed and first example (SeedRandom), the op's stream and the element's index.
struct DropoutParams {
  TensorDesc input;  // batch first, any layout
  float rate = 0;    // in [0, 1)
  uint64_t stream = 0;
};

class Dropout {
 public:
  virtual ~Dropout() = default;
  virtual absl::Status Forward(const float* x, float* y) = 0;
  // Uses the choice of the last Forward.
  virtual absl::Status Backward(const float* dy, float* dx) = 0;
};

// Other random changes of every element, chosen like those of Dropout.
enum class NoiseKind {
  kAdd,       // y = x + amount * a normal number
  kMultiply,  // y = x * (1 + amount * a normal number)
  // Dropout at the rate `amount` that keeps mean and variance of SELU's outputs (Klambauer et al., "Self-Normalizing
  // Neural Networks", 2017, section 3.1): a dropped element becomes SELU's limit, and all are scaled and shifted.
  kAlphaDropout,
  kUniform,  // y = a number between `low` and `low` + amount; x is not used
};
struct NoiseParams {
  NoiseKind kind = NoiseKind::kAdd;
  TensorDesc input;  // batch first, row-major
  float amount = 0;  // from 0 up; kAlphaDropout: below 1
  float low = 0;
  uint64_t stream = 0;
};

// Random transformations of images, drawn for each example like the choice of Dropout: flips, each with probability
// 1/2, a rotation, a zoom and a shift around the center. A range whose ends are equal is not random.
enum class FillMode { kConstant, kNearest, kReflect, kWrap };  // as in SciPy
struct ImageWarpParams {
  struct Range {
    float low = 0, high = 0;
  };
  TensorDesc input{};  // [n, h, w, c], row-major
  bool flips_rows = false, flips_columns = false;
  Range rotation{};                   // radians, counter-clockwise
  Range row_zoom{}, column_zoom{};    // added to 1: below 0 enlarges
  bool keeps_proportions = false;     // column_zoom is not used
  Range row_shift{}, column_shift{};  // fractions of the height and of the width
  FillMode fill = FillMode::kReflect;
  float fill_value = 0;  // kConstant: the value outside the image
  Interpolation interpolation = Interpolation::kBilinear;
  uint64_t stream = 0;
};

class ImageWarp {
 public:
  virtual ~ImageWarp() = default;
  virtual absl::Status Forward(const float* x, float* y) = 0;
};

// A penalty on a variable: l1 * sum |w| + l2 * sum w^2.
class Regularizer {
 public:
  virtual ~Regularizer() = default;
  // Adds the penalty's gradient to `gradient`, unless that is null. The penalty is in host memory at
  // `penalty` after the next Synchronize().
  virtual absl::Status Run(const float* w, float* gradient, double* penalty) = 0;
};

// Samples of normal distributions (Kingma and Welling, "Auto-Encoding Variational Bayes", 2014): y = mean +
// exp(log_variance / 2) * noise. Their divergence from the normal distribution of mean 0 and variance 1 is a penalty:
// `kl_factor` * sum of (exp(log_variance) - log_variance - 1 + mean^2) / 2. All arrays are [elements], float32.
struct GaussianSampleParams {
  int64_t elements = 0;
  float kl_factor = 0;  // from 0 up
};

// INVALID_ARGUMENT for no elements, and for a factor below 0.
absl::Status Validate(const GaussianSampleParams& params);

class GaussianSample {
 public:
  struct Inputs {
    const float* mean = nullptr;
    const float* log_variance = nullptr;
    const float* noise = nullptr;  // null: 0
  };
  virtual ~GaussianSample() = default;
  // The penalty is in host memory at `penalty` after the next Synchronize().
  virtual absl::Status Forward(const Inputs& inputs, float* y, double* penalty) = 0;
  // The gradients include those of the penalty. They are null if they are not needed.
  virtual absl::Status Backward(const Inputs& inputs, const float* dy, float* dmean,
                                float* dlog_variance) = 0;
};

// Loss scaling (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2): gradients that pass
// through float16 are multiplied by a factor, so that small ones do not become 0, and are divided by it at
// the end.
struct LossScalerParams {
  int64_t outputs = 0;  // elements of the network's output, batch included
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<Range> gradients;  // ranges of the flat vector; the rest was not scaled
};

class LossScaler {
 public:
  virtual ~LossScaler() = default;
  // Sets the factor for all work that runs from now on, recordings included. Must not be recorded itself.
  virtual absl::Status SetScale(float scale) = 0;
  virtual absl::Status Scale(float* doutputs) = 0;
  // Divides the ranges of `gradients` by the factor. The next Synchronize() sets `*finite`, in host memory,
  // to whether all results are finite.
  virtual absl::Status Unscale(float* gradients, bool* finite) = 0;
};

// --- Layouts ---

// Copies an activation to another layout or element type. Integers are only copied to float32, row-major, and are
// rounded as C++ rounds them.
class Reorder {
 public:
  virtual ~Reorder() = default;
  virtual absl::Status Run(const float* from, float* to) = 0;
};

class OpFactory {
 public:
  virtual ~OpFactory() = default;
  // Each returns INVALID_ARGUMENT for invalid shapes, and UNIMPLEMENTED for what the backend does not
  // support.
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(const Conv2DParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(
      const Conv2DTransposeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(const DenseParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(const EmbeddingParams& params) = 0;

  // Forward() may write over x. Backward() takes y in the place of x if `params` has_gradient_of_output().
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(const TensorDesc& input,
                                                                  const ActivationParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(const AffineParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(const StandardizeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(const Pool2DParams& params) = 0;
  // Pools [n, h, w, c], in any layout, to [n, c]. A sum of integers whose absolute values add up to 2^24 at most is
  // exact.
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Pooling pooling,
                                                                  const TensorDesc& input) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(const CumulativeSumParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(const RotaryParams& params) = 0;
  // Softmax over the last axis of a row-major tensor.
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(const TensorDesc& input) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(const PairDotsParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(const StepMaskParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(const DepthWindowsParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(const TransposeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(const UnitNormParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(const Upsample2DParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(const ZeroPad2DParams& params) = 0;

  // The inputs have one shape and layout. Add's y may alias its first x.
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(const TensorDesc& input, int inputs) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(const TensorDesc& input, int inputs) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(const MergeParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(const ComparisonParams& params) = 0;
  // Concatenates along `axis`; the inputs agree in the other extents. They are row-major, or they have one
  // blocked layout. Blocked inputs are joined along the channels, and all but the last must fill their
  // blocks.
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(absl::Span<const TensorDesc> inputs,
                                                                  int axis) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(const IdCountsParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(const MaskedMeanParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(const BagPoolParams& params) = 0;

  virtual absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(const AttentionParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(const BatchNormParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(const LayerNormParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(const RecurrenceParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(const DropoutParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(const ImageWarpParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(const NoiseParams& params) = 0;
  virtual absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(int64_t elements, float l1,
                                                                       float l2) = 0;
  virtual absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(
      const GaussianSampleParams& params) = 0;

  // Available only if the device's compute_type() is float16.
  virtual absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(const LossScalerParams& params) = 0;

  virtual absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(const TensorDesc& from,
                                                               const TensorDesc& to) = 0;
  virtual absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params) = 0;
};

}  // namespace cairn::kernels

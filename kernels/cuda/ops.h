// The functions that make the CUDA ops, one per source file; device.cc offers them as its OpFactory.
// `context` must outlive the ops. All activations are row-major.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace cairn::kernels::cuda {

class Context;

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(Context& context, const Conv2DParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(Context& context,
                                                              const Conv2DTransposeParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(Context& context, const DenseParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(Context& context, const EmbeddingParams& params);
// For MakeEmbedding(), if the parameters say `ragged_mean`.
absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbeddingMean(Context& context, const EmbeddingParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(Context& context, const TensorDesc& input,
                                                        const ActivationParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(Context& context, const AffineParams& params);
absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(Context& context,
                                                             const StandardizeParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(Context& context, const Pool2DParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Context& context, Pooling pooling,
                                                        const TensorDesc& input);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(Context& context, const TensorDesc& input);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(Context& context,
                                                           const CumulativeSumParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(Context& context, const RotaryParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(Context& context, const StepMaskParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(Context& context, const PairDotsParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(Context& context, const DepthWindowsParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(Context& context, const TransposeParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(Context& context, const UnitNormParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(Context& context, const Upsample2DParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(Context& context, const ZeroPad2DParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(Context& context, const TensorDesc& input, int inputs);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(Context& context, const TensorDesc& input, int inputs);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(Context& context, const MergeParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(Context& context, const ComparisonParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(Context& context, absl::Span<const TensorDesc> inputs,
                                                        int axis);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(Context& context, const IdCountsParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(Context& context, const MaskedMeanParams& params);
absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(Context& context, const BagPoolParams& params);
absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(Context& context, const AttentionParams& params);
absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(Context& context, const BatchNormParams& params);
absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(Context& context, const LayerNormParams& params);
absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(Context& context, const RecurrenceParams& params);
absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(Context& context, const DropoutParams& params);
absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(Context& context, const ImageWarpParams& params);
absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(Context& context, const NoiseParams& params);
absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(Context& context, int64_t elements, float l1,
                                                             float l2);
absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(Context& context,
                                                                   const GaussianSampleParams& params);
absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(Context& context, const LossScalerParams& params);
absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(Context& context, const TensorDesc& from,
                                                     const TensorDesc& to);
absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(Context& context, const LossParams& params);
// For MakeLoss(), if the parameters are valid and of this kind.
absl::StatusOr<std::unique_ptr<Loss>> MakeInBatchSoftmax(Context& context, const LossParams& params);

}  // namespace cairn::kernels::cuda

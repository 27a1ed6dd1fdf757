// The functions that make the CPU's ops, one per source file; device.cc offers them as its OpFactory.
// `context` must outlive the ops.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace cairn::kernels::onednn {
class Context;
}

namespace cairn::kernels::cpu {

absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(onednn::Context& context, const Conv2DParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(onednn::Context& context,
                                                              const Conv2DTransposeParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(onednn::Context& context, const DenseParams& params);
absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(onednn::Context& context,
                                                        const EmbeddingParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(onednn::Context& context, const TensorDesc& input,
                                                        const ActivationParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(onednn::Context& context, const AffineParams& params);
absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(onednn::Context& context,
                                                             const StandardizeParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAveragePool2D(onednn::Context& context,
                                                           const Pool2DParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeMaxPool2D(onednn::Context& context, const Pool2DParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(onednn::Context& context, Pooling pooling,
                                                        const TensorDesc& input);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(onednn::Context& context, const TensorDesc& input);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(onednn::Context& context,
                                                           const CumulativeSumParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(onednn::Context& context, const RotaryParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(onednn::Context& context, const StepMaskParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(onednn::Context& context, const PairDotsParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(onednn::Context& context,
                                                          const DepthWindowsParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(onednn::Context& context,
                                                       const TransposeParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(onednn::Context& context, const UnitNormParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(onednn::Context& context,
                                                        const Upsample2DParams& params);
absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(onednn::Context& context,
                                                       const ZeroPad2DParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(onednn::Context& context, const TensorDesc& input,
                                                int inputs);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(onednn::Context& context, const TensorDesc& input,
                                                     int inputs);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(onednn::Context& context,
                                                           const MergeParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(onednn::Context& context,
                                                       const ComparisonParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(onednn::Context& context,
                                                        absl::Span<const TensorDesc> inputs, int axis);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(const IdCountsParams& params);
absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(onednn::Context& context,
                                                       const MaskedMeanParams& params);
absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(const BagPoolParams& params);
absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(onednn::Context& context,
                                                         const AttentionParams& params);
absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(onednn::Context& context,
                                                         const BatchNormParams& params);
absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(onednn::Context& context,
                                                         const LayerNormParams& params);
absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(onednn::Context& context,
                                                           const RecurrenceParams& params);
absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(onednn::Context& context, const DropoutParams& params);
absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(onednn::Context& context,
                                                         const ImageWarpParams& params);
absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(onednn::Context& context, const NoiseParams& params);
absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(onednn::Context& context, int64_t elements,
                                                             float l1, float l2);
absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(const GaussianSampleParams& params);
absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(onednn::Context& context, const TensorDesc& from,
                                                     const TensorDesc& to);
absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(onednn::Context& context, const LossParams& params);
// For MakeLoss(), if the parameters are valid and of this kind.
std::unique_ptr<Loss> MakeInBatchSoftmax(onednn::Context& context, const LossParams& params);

}  // namespace cairn::kernels::cpu

// Attention between dense projections while a sequence is decoded: keys and values of earlier steps are kept. Those of
// whole inputs are projected with the first step.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops.h"
#include "nn/layer/decoding.h"
#include "nn/layer/layer.h"
#include "nn/layers/attention/projected_attention_op.h"

namespace cairn::nn {

// Variables as those of ProjectedAttentionOp. There is no gradient.
class CachedAttentionOp final : public LayerOp {
 public:
  // `args.attention.keys` are those of the inputs, of which the op sees only some if they are steps.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const ProjectedAttentionOp::Args& args,
                                                         const Decoding& decoding, kernels::Device& device);

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs&) override { return NoGradientOfDecoding(); }

 private:
  // The projection of keys or values.
  struct Projection {
    size_t input = 0, variable = 0;
    std::unique_ptr<kernels::LinearOp> op{};
    std::unique_ptr<kernels::UnaryOp> rotary{};         // in place; null: none
    std::unique_ptr<kernels::DeviceMemory> of_steps{};  // null for a whole input
    StepCopy copy{};                                    // of steps to the cache
    size_t kept = 0;                                    // in the cache
  };

  CachedAttentionOp(const ProjectedAttentionOp::Args& args, const Decoding& decoding, kernels::Device& device)
      : device_(device),
        first_(decoding.first),
        cache_(*decoding.cache),
        step_masks_(args.step_masks),
        call_(args.call),
        use_bias_(args.use_bias) {}
  absl::StatusOr<std::unique_ptr<kernels::LinearOp>> Project(const kernels::TensorDesc& input,
                                                             int64_t units) const;
  absl::Status Update(const Projection& projection, const ForwardArgs& args) const;
  absl::Status Run(kernels::LinearOp& op, size_t variable, const float* x, const ForwardArgs& args,
                   float* y) const;

  kernels::Device& device_;
  const int64_t* const first_;
  DecodingCache& cache_;
  const StepMaskInputs step_masks_;
  const AttentionCall call_;
  const bool use_bias_;
  kernels::TensorDesc output_;
  std::unique_ptr<kernels::LinearOp> query_, output_projection_;
  std::unique_ptr<kernels::UnaryOp> query_rotary_;
  Projection key_, value_;
  std::unique_ptr<kernels::Attention> attention_;
  std::unique_ptr<kernels::DeviceMemory> queries_, attended_;
};

}  // namespace cairn::nn

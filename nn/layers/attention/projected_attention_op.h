// Attention between dense projections of its inputs and of its output.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"
#include "nn/layers/attention/attention_call.h"

namespace cairn::nn {

// The masks among a call's inputs.
kernels::AttentionInputs MasksOf(const AttentionCall& call, absl::Span<const float* const> inputs);

// The masks of time steps among an op's inputs: of the queries, and of the keys.
struct StepMaskInputs {
  std::optional<size_t> query{}, key{};
};

// Variables: kernel and bias of the projections of query, key, value and output.
class ProjectedAttentionOp final : public LayerOp {
 public:
  struct Args {
    absl::Span<const kernels::TensorDesc> inputs;  // query, value, perhaps key, masks of the call
    size_t key;                                    // the input of the key
    StepMaskInputs step_masks;
    const AttentionCall& call;
    kernels::AttentionParams attention;  // without the type
    const std::vector<double>& rotary;   // frequencies by which queries and keys are rotated; empty: none
    int64_t output_width;
    bool use_bias;
    bool needs_input_gradients;
  };
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const Args& args, kernels::Device& device);

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  struct Projection {
    size_t input = 0;     // of the layer; unused for the projection of the output
    size_t variable = 0;  // the kernel
    std::unique_ptr<kernels::LinearOp> op{};
    std::unique_ptr<kernels::UnaryOp> rotary{};  // in place, of the output; null: none
    std::unique_ptr<kernels::DeviceMemory> output{}, gradient{};
  };

  ProjectedAttentionOp(const Args& args, kernels::Device& device);
  absl::StatusOr<Projection> Project(const kernels::TensorDesc& input, size_t index, int64_t units,
                                     bool needs_input_gradient) const;
  // The bias that follows a kernel; null if there is none.
  template <typename Pointer>
  Pointer BiasOf(absl::Span<const Pointer> variables, size_t kernel) const {
    return use_bias_ ? variables[kernel + 1] : nullptr;
  }
  kernels::AttentionInputs AttentionInputsOf(absl::Span<const float* const> inputs) const;
  absl::Status BackwardProjections(const BackwardArgs& args);
  // Prepares ExpandMask() if the call's attention_mask has one row for all queries.
  absl::Status PrepareMask(absl::Span<const kernels::TensorDesc> inputs,
                           const kernels::AttentionParams& params);
  // Repeats that row for each query.
  absl::Status ExpandMask(absl::Span<const float* const> inputs);

  kernels::Device& device_;
  const StepMaskInputs step_masks_;
  const AttentionCall call_;
  const bool use_bias_;
  kernels::TensorDesc output_;
  std::vector<Projection> projections_;  // query, key, value
  Projection output_projection_;
  std::unique_ptr<kernels::Attention> attention_;
  std::unique_ptr<kernels::DeviceMemory> attended_, attended_gradient_;
  std::unique_ptr<kernels::UnaryOp> expand_mask_;         // null if the mask has a row for each query
  std::unique_ptr<kernels::DeviceMemory> expanded_mask_;  // [batch, queries, keys]
  // For the second and third gradient of one input, and for the gradients of masks.
  std::vector<std::unique_ptr<kernels::DeviceMemory>> more_gradients_;  // [input]; null where there is none
  std::vector<std::unique_ptr<kernels::NaryOp>> add_;                   // [input]
  std::vector<int64_t> input_floats_;                                   // [input]
};

}  // namespace cairn::nn

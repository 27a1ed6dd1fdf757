// The parts of convolutions and dense layers: oneDNN primitives that map between a source, a kernel and a
// destination, and the conversions between their formats and the caller's.
#pragma once

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/relu.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// The formats in which the caller keeps the operands of a part.
struct Owned {
  onednn::MemoryDesc source, kernel, destination;
};

// One of the three primitives (forward, backward by the kernel, backward by the source) with its staging. Its
// arguments are the source, kernel, destination and bias, in this order, or their gradients.
class LinearPart {
 public:
  // `bias` may be an empty descriptor.
  static absl::StatusOr<LinearPart> Create(onednn::Context& context, const dnnl::primitive_desc_base& desc,
                                           const Owned& owned, const onednn::Primitive::Argument& source,
                                           const onednn::Primitive::Argument& kernel,
                                           const onednn::Primitive::Argument& destination,
                                           const onednn::Primitive::Argument& bias);

  // Copies the inputs into the primitive's formats, runs it, and copies its outputs back. The primitive
  // determines which of the four arguments it writes.
  absl::Status Run(const float* source, const float* kernel, const float* destination, const float* bias);

 private:
  struct Operand {
    onednn::Staging staging;
    bool out = false;  // written by the primitive
  };
  static absl::StatusOr<Operand> MakeOperand(onednn::Context& context, const onednn::MemoryDesc& owner,
                                             const onednn::Primitive::Argument& argument);
  LinearPart(onednn::Primitive primitive, Operand source, Operand kernel, Operand destination);

  onednn::Primitive primitive_;
  Operand operands_[3];  // source, kernel, destination
};

// y = relu(map(x, kernel) + bias). oneDNN computes the map and its two gradients.
class OnednnLinear final : public LinearOp {
 public:
  struct Parts {
    LinearPart forward, weights;
    std::optional<LinearPart> input;  // absent if no input gradient is needed
    std::optional<ReluInPlace> relu;
  };
  OnednnLinear(TensorDesc output, Parts parts) : output_(std::move(output)), parts_(std::move(parts)) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override;
  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override;
  bool splits_backward() const override { return parts_.input.has_value(); }
  absl::Status BackwardInput(const float* kernel, const float* dy, float* dx) override;

 private:
  const TensorDesc output_;
  Parts parts_;
};

}  // namespace cairn::kernels::cpu

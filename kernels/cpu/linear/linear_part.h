// The parts of convolutions and dense layers: oneDNN primitives that map between a source, a kernel and a
// destination, and the conversions between their formats and the caller's.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/linear/kernel_gradient.h"
#include "kernels/cpu/linear/relu.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// The formats in which the caller keeps the operands of a part.
struct Owned {
  onednn::MemoryDesc source, kernel, destination;
};

// The three primitives of a linear map: the map, and its gradients by the kernel and by the source.
enum class Pass { kForward, kBackwardWeights, kBackwardData };

// One of these primitives with its staging. Its arguments are the source, kernel, destination and bias, in
// this order, or the gradients in their places.
class LinearPart {
 public:
  // `desc` describes the primitive of `pass`. `before`: null, or a part that runs before this one on every run, on the
  // same inputs where both have them: what it has copied is not copied again.
  static absl::StatusOr<LinearPart> Create(onednn::Context& context, Pass pass,
                                           const dnnl::primitive_desc_base& desc, const Owned& owned,
                                           bool use_bias, const LinearPart* before = nullptr);

  // Copies the inputs into the primitive's formats, runs it, and copies its outputs back. The primitive
  // determines which of the four arguments it writes.
  absl::Status Run(const float* source, const float* kernel, const float* destination, const float* bias);
  // The source in the primitive's format, where the last Run() has left it.
  const float* source(const float* owner) const {
    return operands_[0].staging->Target(const_cast<float*>(owner));
  }

 private:
  struct Operand {
    std::shared_ptr<onednn::Staging> staging;
    onednn::MemoryDesc desc;  // the primitive's
    bool out = false;         // written by the primitive
    bool loaded = false;      // by another part
  };
  LinearPart(onednn::Primitive primitive, Operand source, Operand kernel, Operand destination);

  onednn::Primitive primitive_;
  Operand operands_[3];  // source, kernel, destination
};

// y = relu(map(x, kernel) + bias). oneDNN computes the map and its two gradients.
class OnednnLinear final : public LinearOp {
 public:
  // The descriptors of the primitives.
  struct Passes {
    dnnl::primitive_desc_base forward, weights{};
    std::optional<dnnl::primitive_desc_base> input{};  // absent if no input gradient is needed
    // Not null: runs in the place of `weights`, which is not used.
    std::unique_ptr<KernelGradient> own_weights{};

    bool any_reference() const;
  };
  struct Options {
    bool use_bias, relu;
  };
  static absl::StatusOr<std::unique_ptr<LinearOp>> Create(onednn::Context& context, const TensorDesc& output,
                                                          const Owned& owned, Passes passes,
                                                          const Options& options);

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override;
  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override;
  bool splits_backward() const override { return input_.has_value(); }
  absl::Status BackwardInput(const float* kernel, const float* dy, float* dx) override;

 private:
  OnednnLinear(const TensorDesc& output, LinearPart forward, std::unique_ptr<KernelGradient> own_weights)
      : output_(output), forward_(std::move(forward)), own_weights_(std::move(own_weights)) {}

  const TensorDesc output_;
  LinearPart forward_;
  std::unique_ptr<KernelGradient> own_weights_;  // or null
  std::optional<LinearPart> weights_;            // absent if there is own_weights_
  std::optional<LinearPart> input_;              // absent if no input gradient is needed
  std::optional<ReluInPlace> relu_;
};

// make(operands) with the context's type of operands; with float32 if oneDNN has only reference code for it.
absl::StatusOr<OnednnLinear::Passes> MakePasses(
    const onednn::Context& context,
    absl::FunctionRef<absl::StatusOr<OnednnLinear::Passes>(ElementType operands)> make);

// The arguments of oneDNN's convolution whose output has this shape.
onednn::ConvolutionArgs ConvolutionArgsOf(const Conv2DParams& params, const Shape& output);

}  // namespace cairn::kernels::cpu

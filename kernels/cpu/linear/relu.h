// max(x, 0) in place, after a linear map of oneDNN, and its gradient.
//
// oneDNN's fused relu is the processor's maximum of the sum and 0, which is 0 for NaN (eltwise_relu without a
// slope, with AVX-512, AVX2 and SSE4.1): a network with NaN in its weights would compute finite outputs. A
// separate pass over the output that was just written keeps the NaN. It costs as much as the gradient's pass,
// which oneDNN does not fuse either.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {

class ReluInPlace {
 public:
  // For tensors of `count` floats, padding included. `context` must outlive the object.
  ReluInPlace(const onednn::Context& context, int64_t count) : context_(&context), count_(count) {}

  // y = max(y, 0); NaN stays.
  void Forward(float* y) const {
    ParallelFor(*context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      code_.forward({.kind = Activation::kRelu}, y + begin, end - begin, y + begin);
    });
  }

  // dy = 0 where the output y is not above 0.
  void Backward(const float* y, float* dy) const {
    ParallelFor(*context_, count_, kElementGrain, [=, this](int64_t begin, int64_t end) {
      code_.backward({.kind = Activation::kRelu}, y + begin, dy + begin, end - begin, dy + begin);
    });
  }

 private:
  const onednn::Context* context_;
  int64_t count_;
  ActivationCode code_ = CAIRN_BEST_LOOPS(ActivationLoops);
};

}  // namespace cairn::kernels::cpu

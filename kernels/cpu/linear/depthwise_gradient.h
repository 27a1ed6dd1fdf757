// The gradient of a depthwise convolution by its kernel and bias. oneDNN has fast code for kernels up to 3 x 3. For
// larger ones it multiplies a matrix for each channel and example, which takes many times as long.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/linear/kernel_gradient.h"
#include "kernels/cpu/loops/depthwise_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

class DepthwiseGradient final : public KernelGradient {
 public:
  // Whether it takes a convolution whose source and destination have these layouts on this processor.
  static bool Takes(const Conv2DParams& params, Layout source, Layout destination);

  // `args` are those of the convolution.
  DepthwiseGradient(onednn::Context& context, const onednn::ConvolutionArgs& args);

  // dkernel [kernel_height, kernel_width, channels]; dbias [channels]. The sums do not depend on the number of threads.
  absl::Status Run(const float* source, const float* dy, float* dkernel, float* dbias) override;

 private:
  onednn::Context& context_;
  const DepthwiseCode code_ = CAIRN_BEST_LOOPS(DepthwiseLoops);
  const DepthwiseShape shape_;
  const int64_t batch_, channels_, blocks_;
  const int64_t parts_;       // of the batch, whose sums are added in their order
  std::vector<float> zeros_;  // [columns, lanes] a row outside of the image
  std::vector<float> sums_;   // [blocks, parts, taps + 1, lanes] of the kernel, and last of the bias
};

}  // namespace cairn::kernels::cpu

// Convolutions with fused relu and 2x2 max pooling: the op that MakeConv2D() returns for Conv2DParams with
// pooling.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// Supports strides and dilations of 1, one group, a relu, windows of 2x2, and images and kernels small enough
// for the caches. UNIMPLEMENTED for anything else: this op cannot compute it, or separate ops were measured
// to be faster. Results do not depend on the number of threads; the gradients of a batch are computed in at
// most 16 pieces in parallel.
absl::StatusOr<std::unique_ptr<LinearOp>> MakePooledConv2D(onednn::Context& context,
                                                           const Conv2DParams& params);

}  // namespace cairn::kernels::cpu

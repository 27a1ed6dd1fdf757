// Convolutions whose relu and 2x2 max pooling are fused: what MakeConv2D() makes of Conv2DParams with
// pooling.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// Strides and dilations of 1, one group, a relu, windows of 2x2, and images and kernels small enough for the
// caches: the rest is UNIMPLEMENTED, or was found faster apart. Results do not depend on the number of
// threads; of a batch's gradients at most 16 pieces are computed side by side.
absl::StatusOr<std::unique_ptr<LinearOp>> MakePooledConv2D(onednn::Context& context,
                                                           const Conv2DParams& params);

}  // namespace cairn::kernels::cpu

#pragma once

#include <memory>

#include "kernels/broadcast.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// The product of two inputs of which one is repeated along one axis. Null for any other broadcast.
std::unique_ptr<NaryOp> MakeBroadcastProduct(onednn::Context& context, const Broadcast& broadcast,
                                             const TensorDesc& output);

}  // namespace cairn::kernels::cpu

// The CPU's makers of ops, one per source file; device.cc offers them as its OpFactory. `context` outlives
// the ops.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace cairn::kernels::onednn {
class Context;
}

namespace cairn::kernels::cpu {

absl::StatusOr<std::unique_ptr<Conv2D>> MakeConv2D(onednn::Context& context, const Conv2DParams& params);
absl::StatusOr<std::unique_ptr<MaxPool2D>> MakeMaxPool2D(onednn::Context& context,
                                                         const MaxPool2DParams& params);
absl::StatusOr<std::unique_ptr<Dense>> MakeDense(onednn::Context& context, const DenseParams& params);
absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(onednn::Context& context, const TensorDesc& from,
                                                     const TensorDesc& to);
absl::StatusOr<std::unique_ptr<Softmax>> MakeSoftmax(int64_t batch, int64_t classes);
absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params);

}  // namespace cairn::kernels::cpu

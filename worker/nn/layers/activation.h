// The `activation` field of layers, and what it becomes: fused into the kernel, or an op of its own after it.
#pragma once

#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "worker/nn/config_reader.h"

namespace cairn::nn {

enum class ActivationKind { kLinear, kRelu, kSoftmax };

// Keras' names; absent is linear. The error for an unknown one lists the supported.
ActivationKind ReadActivation(absl::string_view field, ConfigReader& config);

// What the layer's own kernel computes. Softmax is not fused: it follows a linear kernel.
kernels::Activation FusedPart(ActivationKind kind);

}  // namespace cairn::nn

// Memory for the outputs of a plan's steps.
//
// An output that a backward pass reads, or that is an output of the stage, has memory of its own. Any other is needed
// until its last use in the forward pass: its memory then serves later outputs, or already the step that uses it last,
// if the op of that step can write over its input. The ReLU after a batch normalization, for example, needs no memory.
#pragma once

#include "absl/status/status.h"
#include "kernels/device.h"
#include "nn/replica/step_graph.h"

namespace cairn::nn {

// Sets StepGraph::buffers and the `memory` of the values. `graph` may not get other steps afterwards.
// RESOURCE_EXHAUSTED, naming a step, if there is not enough device memory.
absl::Status AllocateOutputs(StepGraph& graph, kernels::Device& device);

}  // namespace cairn::nn

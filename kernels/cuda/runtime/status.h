// CUDA's errors as statuses.
#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"

namespace cairn::kernels::cuda {

// Converts an error; `what` is the call that returned it: "cudaMemcpyAsync". RESOURCE_EXHAUSTED if memory ran
// out, otherwise INTERNAL.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

}  // namespace cairn::kernels::cuda

// CAIRN_CUDA(cudaStreamSynchronize(stream)): returns from the function with an error.
#define CAIRN_CUDA(call) CAIRN_RETURN_IF_ERROR(::cairn::kernels::cuda::ToStatus((call), #call))

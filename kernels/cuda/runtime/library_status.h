// Errors of cuBLAS and cuDNN as statuses: UNIMPLEMENTED for what the library does not support, else INTERNAL.
#pragma once

#include <cublas_v2.h>
#include <cudnn.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"

namespace cairn::kernels::cuda {

absl::Status ToStatus(cublasStatus_t status, absl::string_view what);
absl::Status ToStatus(cudnnStatus_t status, absl::string_view what);

}  // namespace cairn::kernels::cuda

#define CAIRN_CUBLAS(call) CAIRN_RETURN_IF_ERROR(::cairn::kernels::cuda::ToStatus((call), #call))
#define CAIRN_CUDNN(call) CAIRN_RETURN_IF_ERROR(::cairn::kernels::cuda::ToStatus((call), #call))

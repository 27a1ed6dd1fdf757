#include "kernels/cuda/runtime/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn::kernels::cuda {

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  static_cast<void>(cudaGetLastError());  // reported here; otherwise the next launch would report it again
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
}

}  // namespace cairn::kernels::cuda

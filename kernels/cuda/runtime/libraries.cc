#include "kernels/cuda/runtime/libraries.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime/library_status.h"

namespace cairn::kernels::cuda {

absl::StatusOr<std::unique_ptr<Libraries>> Libraries::Create(cudaStream_t stream) {
  std::unique_ptr<Libraries> libraries(new Libraries());
  CAIRN_CUBLAS(cublasLtCreate(&libraries->blas_));
  CAIRN_CUDNN(cudnnCreate(&libraries->dnn_));
  CAIRN_CUDNN(cudnnSetStream(libraries->dnn_, stream));
  return libraries;
}

Libraries::~Libraries() {
  if (dnn_ != nullptr) static_cast<void>(cudnnDestroy(dnn_));
  if (blas_ != nullptr) static_cast<void>(cublasLtDestroy(blas_));
}

absl::Status ToStatus(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cublasGetStatusName(status));
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::UnimplementedError(text) : absl::InternalError(text);
}

absl::Status ToStatus(cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cudnnGetErrorString(status));
  // All codes for unsupported shapes are in one range.
  const bool unsupported = status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
  return unsupported ? absl::UnimplementedError(text) : absl::InternalError(text);
}

}  // namespace cairn::kernels::cuda

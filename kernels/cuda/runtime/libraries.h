// NVIDIA's libraries on one device: handles that are bound to the stream of its context.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "absl/status/statusor.h"

// The types behind cublasLtHandle_t and cudnnHandle_t, so that this header needs neither library's header.
struct cublasLtContext;
struct cudnnContext;

namespace cairn::kernels::cuda {

class Libraries {
 public:
  static absl::StatusOr<std::unique_ptr<Libraries>> Create(cudaStream_t stream);
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasLtContext* blas() const { return blas_; }
  cudnnContext* dnn() const { return dnn_; }

 private:
  Libraries() = default;

  cublasLtContext* blas_ = nullptr;
  cudnnContext* dnn_ = nullptr;
};

}  // namespace cairn::kernels::cuda

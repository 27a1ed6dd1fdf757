// The CUDA backend inside its library; programs use kernels/cuda_backend.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda_backend.h"

namespace cairn::kernels::cuda {

// The functions of CudaBackend, with the same contracts.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const CudaOptions& options);
absl::StatusOr<int> CountDevices();
absl::StatusOr<CudaDeviceInfo> DescribeDevice(int index);
absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateGroup(absl::Span<const int> indices);
absl::StatusOr<std::unique_ptr<PeerDevice>> CreatePeer(int index);

}  // namespace cairn::kernels::cuda

// The symbol that libcairn_cuda.so exports.
#include "kernels/cuda/device.h"

extern "C" __attribute__((visibility("default"))) const cairn::kernels::CudaBackend* cairn_cuda_backend() {
  static constexpr cairn::kernels::CudaBackend kBackend = {
      .version = CAIRN_VERSION,
      .create_device = &cairn::kernels::cuda::CreateDevice,
      .count_devices = &cairn::kernels::cuda::CountDevices,
      .describe_device = &cairn::kernels::cuda::DescribeDevice,
      .create_group = &cairn::kernels::cuda::CreateGroup,
      .create_peer = &cairn::kernels::cuda::CreatePeer};
  return &kBackend;
}

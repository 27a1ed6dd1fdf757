// A fake libcairn_cuda.so: correct, or with a fault that the build chose.
#include "kernels/cuda_backend.h"

namespace {

using cairn::kernels::CudaBackend;
using cairn::kernels::CudaDeviceInfo;
using cairn::kernels::CudaOptions;
using cairn::kernels::Device;
using cairn::kernels::DeviceGroup;

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const CudaOptions&) {
  return absl::ResourceExhaustedError("no memory left");
}
absl::StatusOr<int> CountDevices() {
  return 2;
}
absl::StatusOr<CudaDeviceInfo> DescribeDevice(int) {
  return CudaDeviceInfo{.name = "a fake"};
}
absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateGroup(absl::Span<const int>) {
  return absl::NotFoundError("no NCCL");
}

}  // namespace

#if defined(FAKE_LACKING)
extern "C" void cairn_symbol_of_a_library_that_is_missing();
#endif

#if defined(FAKE_NO_BACKEND)
#define ENTRY cairn_something_else
#else
#define ENTRY cairn_cuda_backend
#endif

extern "C" const CudaBackend* ENTRY() {
#if defined(FAKE_LACKING)
  cairn_symbol_of_a_library_that_is_missing();
#endif
#if defined(FAKE_OTHER_VERSION)
  constexpr const char* kVersion = "0.0.9";
#else
  constexpr const char* kVersion = CAIRN_VERSION;
#endif
  static constexpr CudaBackend kBackend = {.version = kVersion,
                                           .create_device = &CreateDevice,
                                           .count_devices = &CountDevices,
                                           .describe_device = &DescribeDevice,
                                           .create_group = &CreateGroup};
  return &kBackend;
}

// Loads the CUDA backend, the shared library libcairn_cuda.so, at run time, so that one build of the programs
// serves machines with and without CUDA. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/device_group.h"
#include "kernels/peer_group.h"

namespace cairn::kernels {

// The precision of matrix products and convolutions. Variables and their gradients are always float32.
enum class Precision {
  kFloat32,
  kTensorFloat32,  // float32 operands, rounded to 10 bits of mantissa for the tensor cores
  kBFloat16,       // activations and the operands of products in 16 bits, sums in 32 bits
  kFloat16,
};

// "fp32", "tf32", "bf16", "fp16".
const char* NameOf(Precision precision);
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

struct CudaOptions {
  int index = 0;  // among the visible devices
  Precision precision = Precision::kTensorFloat32;
  // Allocates memory in ever larger slabs, so that larger batches later find memory. False: allocates only
  // what the model needs.
  bool allow_growth = false;
  double memory_fraction = 1;  // the limit, as a fraction of the card's memory, in (0, 1]
};

// A description for the user.
struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int64_t memory_clock_khz = 0;
  std::string pci_bus_id{};
  int64_t total_bytes = 0, free_bytes = 0;

  // In TensorFlow's format, on one line: "name: NVIDIA H200 major: 9 minor: 0 memoryClockRate (GHz): 3.201
  // pciBusID: 0000:3b:00.0 totalMemory: 139.81GiB freeMemory: 139.21GiB".
  std::string ToString() const;
};

// The functions of the backend library, returned by its one symbol, kCudaBackendSymbol. A program calls them
// only if `version` is its own version.
struct CudaBackend {
  const char* version = nullptr;
  absl::StatusOr<std::unique_ptr<Device>> (*create_device)(const CudaOptions& options) = nullptr;
  // Initializes no device. NOT_FOUND, "no usable GPU: ...", if the driver finds none.
  absl::StatusOr<int> (*count_devices)() = nullptr;
  // Initializes the device, which takes time and some of its memory.
  absl::StatusOr<CudaDeviceInfo> (*describe_device)(int index) = nullptr;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> (*create_group)(absl::Span<const int> indices) = nullptr;
  absl::StatusOr<std::unique_ptr<PeerDevice>> (*create_peer)(int index) = nullptr;
};
inline constexpr char kCudaBackendSymbol[] = "cairn_cuda_backend";  // const CudaBackend* (), extern "C"

// These functions use the library next to the running program, in ../lib or ../lib/cairn relative to it, or
// in the system's library path. Errors say in one line why there is no usable GPU. NOT_FOUND: this
// installation has no CUDA backend, or the machine has no driver or no device (with that index).
// FAILED_PRECONDITION: a library of NVIDIA is missing, the backend is from another build, or the driver is
// too old.
absl::StatusOr<int> CountCudaDevices();  // at least 1
absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int index);
// Can also return RESOURCE_EXHAUSTED: the card has no memory left.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& options);
// A group of at least two devices, independent of the Device objects created for them. Initializes each
// device, and tests the group with a sum of known numbers. NOT_FOUND without NCCL; FAILED_PRECONDITION,
// INTERNAL or DEADLINE_EXCEEDED (after half a minute) if NCCL does not work.
absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateCudaGroup(absl::Span<const int> indices);
// The device for sums with devices of other processes. NOT_FOUND without NCCL; FAILED_PRECONDITION if NCCL
// cannot be used.
absl::StatusOr<std::unique_ptr<PeerDevice>> CreateCudaPeer(int index);

// Opens the first of `paths` that exists; the system searches for a path without a slash. The library is
// never closed.
absl::StatusOr<const CudaBackend*> OpenCudaBackend(absl::Span<const std::string> paths);

}  // namespace cairn::kernels

// The way to the CUDA backend, which is a shared library of its own, libcairn_cuda.so: found and opened at
// run time, so that one build of the programs serves machines with and without CUDA. Any thread.
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

// What matrix products and convolutions compute in. Variables and their gradients are float32 in all of them.
enum class Precision {
  kFloat32,
  kTensorFloat32,  // float32 operands, rounded to 10 bits of mantissa on their way into the tensor cores
  kBFloat16,       // activations and the operands of products in 16 bits, sums in 32
  kFloat16,
};

// "fp32", "tf32", "bf16", "fp16".
const char* NameOf(Precision precision);
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

struct CudaOptions {
  int index = 0;  // among the visible devices
  Precision precision = Precision::kTensorFloat32;
  // Memory is taken in large pieces ahead of its use, so that later batch sizes find some; false: what the
  // model needs.
  bool allow_growth = false;
  double memory_fraction = 1;  // of the card's memory, in (0, 1]: the most that is taken
};

// As a person is told of it.
struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int64_t memory_clock_khz = 0;
  std::string pci_bus_id{};
  int64_t total_bytes = 0, free_bytes = 0;

  // In TensorFlow's words, on one line: "name: NVIDIA H200 major: 9 minor: 0 memoryClockRate (GHz): 3.201
  // pciBusID: 0000:3b:00.0 totalMemory: 139.81GiB freeMemory: 139.21GiB".
  std::string ToString() const;
};

// What a shared library of the backend gives, by its one symbol, kCudaBackendSymbol. `version` tells one
// build from another: what stands behind it is only called by a program of the same.
struct CudaBackend {
  const char* version = nullptr;
  absl::StatusOr<std::unique_ptr<Device>> (*create_device)(const CudaOptions& options) = nullptr;
  // Touches none of them. NOT_FOUND, "no usable GPU: ...", where the driver shows none.
  absl::StatusOr<int> (*count_devices)() = nullptr;
  // Sets up the device, which takes time and some of its memory.
  absl::StatusOr<CudaDeviceInfo> (*describe_device)(int index) = nullptr;
  absl::StatusOr<std::unique_ptr<DeviceGroup>> (*create_group)(absl::Span<const int> indices) = nullptr;
  absl::StatusOr<std::unique_ptr<PeerDevice>> (*create_peer)(int index) = nullptr;
};
inline constexpr char kCudaBackendSymbol[] = "cairn_cuda_backend";  // const CudaBackend* (), extern "C"

// Of the library that is found beside the running program, in ../lib or ../lib/cairn from there, or where the
// system looks. Errors say in one line why there is no usable GPU: NOT_FOUND where there is nothing to use,
// no CUDA in this installation, no driver, no device (of that index); FAILED_PRECONDITION where what is there
// cannot be used: a library of NVIDIA's is missing, the backend is of another build, the driver too old.
absl::StatusOr<int> CountCudaDevices();  // at least 1
absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int index);
// Also RESOURCE_EXHAUSTED, when the card has no memory left.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& options);
// Of these devices, two or more, whatever has been created on them; sets each of them up, and has all add up
// a few numbers on trial. NOT_FOUND where there is no NCCL; FAILED_PRECONDITION, INTERNAL or
// DEADLINE_EXCEEDED, after half a minute, where what is there does not work.
absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateCudaGroup(absl::Span<const int> indices);
// This device for sums with those of other processes. NOT_FOUND where there is no NCCL; FAILED_PRECONDITION
// where what is there cannot be used.
absl::StatusOr<std::unique_ptr<PeerDevice>> CreateCudaPeer(int index);

// The first of `paths` that is there; one without a slash is looked for by the system. Stays open for good.
absl::StatusOr<const CudaBackend*> OpenCudaBackend(absl::Span<const std::string> paths);

}  // namespace cairn::kernels

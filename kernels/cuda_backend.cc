#include "kernels/cuda_backend.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "common/system/limits.h"

namespace cairn::kernels {
namespace {

constexpr char kLibrary[] = "libcairn_cuda.so";

struct PrecisionName {
  Precision precision;
  const char* name;
};
constexpr PrecisionName kPrecisions[] = {{Precision::kFloat32, "fp32"},
                                         {Precision::kTensorFloat32, "tf32"},
                                         {Precision::kBFloat16, "bf16"},
                                         {Precision::kFloat16, "fp16"}};

std::vector<std::string> UsualPaths() {
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const char* folder : {"", "../lib", "../lib/cairn"}) {
      paths.push_back((program.parent_path() / folder / kLibrary).lexically_normal().string());
    }
  }
  paths.emplace_back(kLibrary);
  return paths;
}

// CUDA reserves address space for the memory of its GPUs and of the machine. Below this limit (ulimit -v) it
// cannot work, and its libraries would leave no room for anything else.
constexpr int64_t kMinAddressSpace = int64_t{8} << 30;

absl::StatusOr<const CudaBackend*> OpenWithinLimits() {
  const int64_t limit = AddressSpaceLimit().value_or(kMinAddressSpace);
  if (limit >= kMinAddressSpace) return OpenCudaBackend(UsualPaths());
  return absl::FailedPreconditionError(absl::StrCat("no usable GPU: CUDA needs more address space than ",
                                                    InGiB(static_cast<double>(limit)), " (ulimit -v)"));
}

// The library is opened once per process and never closed: the threads and memory of NVIDIA's libraries would
// not survive the closing.
const absl::StatusOr<const CudaBackend*>& Backend() {
  static const auto* const backend = new absl::StatusOr<const CudaBackend*>(OpenWithinLimits());
  return *backend;
}

std::string LastLoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

absl::StatusOr<int> CountDevices(const CudaBackend& backend) {
  CAIRN_ASSIGN_OR_RETURN(const int count, backend.count_devices());
  if (count == 0) return absl::NotFoundError("no usable GPU: the driver shows no device");
  return count;
}

absl::Status CheckIndex(const CudaBackend& backend, int index) {
  CAIRN_ASSIGN_OR_RETURN(const int count, CountDevices(backend));
  if (index >= 0 && index < count) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("no usable GPU: there is no /gpu:", index, ", ",
                   count == 1 ? "only /gpu:0" : absl::StrCat("only /gpu:0 to /gpu:", count - 1)));
}

}  // namespace

const char* NameOf(Precision precision) {
  for (const PrecisionName& row : kPrecisions) {
    if (row.precision == precision) return row.name;
  }
  return "";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const PrecisionName& row : kPrecisions) {
    if (name == row.name) return row.precision;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not one of fp32, tf32, bf16, fp16"));
}

std::string CudaDeviceInfo::ToString() const {
  constexpr double kGibibyte = 1 << 30;
  return absl::StrFormat(
      "name: %s major: %d minor: %d memoryClockRate (GHz): %.3f pciBusID: %s totalMemory: %.2fGiB "
      "freeMemory: %.2fGiB",
      name, major, minor, static_cast<double>(memory_clock_khz) * 1e-6, pci_bus_id,
      static_cast<double>(total_bytes) / kGibibyte, static_cast<double>(free_bytes) / kGibibyte);
}

absl::StatusOr<const CudaBackend*> OpenCudaBackend(absl::Span<const std::string> paths) {
  for (const std::string& path : paths) {
    const bool is_name = !absl::StrContains(path, "/");
    if (!is_name && !FileExists(path)) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const std::string error = LastLoaderError();
      // The loader's error begins with the missing file: this one, or one that it depends on.
      if (is_name && absl::StartsWith(error, absl::StrCat(path, ":"))) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("no usable GPU: ", path, " cannot be opened: ", error));
    }
    const auto entry = reinterpret_cast<const CudaBackend* (*)()>(dlsym(library, kCudaBackendSymbol));
    if (entry == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no usable GPU: ", path, " is not a CUDA backend of this program: ", LastLoaderError()));
    }
    const CudaBackend* const backend = entry();
    if (absl::string_view(backend->version) != CAIRN_VERSION) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no usable GPU: ", path, " has version ", backend->version, ", this program has ", CAIRN_VERSION));
    }
    return backend;
  }
  return absl::NotFoundError(
      absl::StrCat("no usable GPU: this installation has no CUDA backend (", kLibrary, " was not found)"));
}

absl::StatusOr<int> CountCudaDevices() {
  CAIRN_ASSIGN_OR_RETURN(const CudaBackend* const backend, Backend());
  return CountDevices(*backend);
}

absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int index) {
  CAIRN_ASSIGN_OR_RETURN(const CudaBackend* const backend, Backend());
  CAIRN_RETURN_IF_ERROR(CheckIndex(*backend, index));
  return backend->describe_device(index);
}

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const CudaBackend* const backend, Backend());
  CAIRN_RETURN_IF_ERROR(CheckIndex(*backend, options.index));
  return backend->create_device(options);
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> CreateCudaGroup(absl::Span<const int> indices) {
  CAIRN_ASSIGN_OR_RETURN(const CudaBackend* const backend, Backend());
  for (const int index : indices) CAIRN_RETURN_IF_ERROR(CheckIndex(*backend, index));
  return backend->create_group(indices);
}

absl::StatusOr<std::unique_ptr<PeerDevice>> CreateCudaPeer(int index) {
  CAIRN_ASSIGN_OR_RETURN(const CudaBackend* const backend, Backend());
  CAIRN_RETURN_IF_ERROR(CheckIndex(*backend, index));
  return backend->create_peer(index);
}

}  // namespace cairn::kernels

// A copy of host data in device memory. If the device computes in host memory, nothing is copied and the host
// data itself is used. Use it from the device's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "common/core/tensor_view.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::nn {

// Rounds up to an alignment that suits every device.
constexpr int64_t PaddedFloats(int64_t floats) {
  constexpr int64_t kAlignment = 64;
  return (floats + kAlignment - 1) / kAlignment * kAlignment;
}

class DeviceCopy {
 public:
  static absl::StatusOr<DeviceCopy> Create(kernels::Device& device, int64_t num_floats,
                                           absl::string_view what) {
    DeviceCopy copy(device);
    if (!device.host_memory_is_device_memory()) {
      CAIRN_ASSIGN_OR_RETURN(copy.memory_, device.Allocate(num_floats, what));
    }
    return copy;
  }

  // Makes `host` [count] readable by the device, and returns its address there.
  absl::StatusOr<const float*> Upload(const float* host, int64_t count) {
    if (memory_ == nullptr) return host;
    CAIRN_RETURN_IF_ERROR(device_->CopyToDevice(host, memory_->data(), count * int64_t{sizeof(float)}));
    return memory_->data();
  }
  // The same for a tensor of any type. A ragged tensor, of int64, becomes one piece of memory: see
  // kernels::EmbeddingParams::ragged_mean. It is copied even if the device computes in host memory, and the memory
  // grows as needed, so the address may change from call to call. INVALID_ARGUMENT if it has too many elements.
  absl::StatusOr<const float*> Upload(const TensorView& host) {
    if (host.ragged()) return UploadRagged(host);
    if (memory_ == nullptr) return static_cast<const float*>(host.data);
    CAIRN_RETURN_IF_ERROR(device_->CopyToDevice(host.data, memory_->data(), host.bytes()));
    return memory_->data();
  }
  // Where the device writes a result that is then copied to `host`: its own memory, or `host` itself if the
  // device computes in host memory.
  float* Target(float* host) const { return memory_ == nullptr ? host : memory_->data(); }

 private:
  explicit DeviceCopy(kernels::Device& device) : device_(&device) {}

  absl::StatusOr<const float*> UploadRagged(const TensorView& host) {
    constexpr int64_t kMaxElements = (int64_t{1} << 32) - 2;
    const auto rows = static_cast<int64_t>(host.row_splits.size()) - 1;
    const int64_t begin = host.row_splits.front(), elements = host.row_splits.back() - begin;
    if (elements > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("a ragged input of ", rows, " examples has ", elements,
                                                     " values, more than ", kMaxElements));
    }
    const int64_t floats = kernels::RaggedFloats(rows, elements);
    if (ragged_.size() < floats) ragged_ = AlignedBuffer(std::max(floats, 2 * ragged_.size()));
    auto* to = reinterpret_cast<int64_t*>(ragged_.data());
    for (const int64_t split : host.row_splits) *to++ = split - begin;
    std::copy_n(static_cast<const int64_t*>(host.data) + begin, elements, to);
    if (memory_ == nullptr) return ragged_.data();
    if (memory_->num_floats() < floats) {
      CAIRN_ASSIGN_OR_RETURN(memory_, device_->Allocate(ragged_.size(), "ragged inputs"));
    }
    CAIRN_RETURN_IF_ERROR(device_->CopyToDevice(ragged_.data(), memory_->data(),
                                                (rows + 1 + elements) * int64_t{sizeof(int64_t)}));
    return memory_->data();
  }

  kernels::Device* device_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
  AlignedBuffer ragged_;  // the last ragged tensor, in host memory
};

}  // namespace cairn::nn

// The name of a device, as TensorFlow writes it.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::worker {

// "/job:worker/task:0/device:GPU:0", "/device:GPU:0", "/gpu:0", "gpu:0", "GPU", in any case.
struct DeviceName {
  std::string job{};           // empty: any
  std::optional<int> task{};   // none: any
  bool gpu = false;            // or the CPU
  std::optional<int> index{};  // none: one of the GPUs
};

// INVALID_ARGUMENT quoting `text`.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text);

}  // namespace cairn::worker

// The name of a device, as TensorFlow writes it, and TensorFlow's rules for such names (its DeviceNameUtils
// and Python's DeviceSpec): what may be left open, what two names say together, which devices a name speaks
// of. Values; any thread.
//
//   /job:worker/replica:0/task:3/device:GPU:1     all of it
//   /device:GPU:1, /gpu:1, gpu:1                  the old short forms; types in any case, printed in upper
//   case /job:worker/device:GPU:*, GPU, /job:*, /, ""  a part left out or a star is left open
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::worker {

inline constexpr char kCpu[] = "CPU";
inline constexpr char kGpu[] = "GPU";

struct DeviceName {
  std::optional<std::string> job{};
  std::optional<int> replica{}, task{};
  std::optional<std::string> type{};  // kCpu, kGpu, or a type that we do not have; upper case
  std::optional<int> index{};

  bool complete() const { return job && replica && task && type && index; }
  // "/job:worker/replica:0/task:3/device:GPU:1"; what is open is left out, an open index of a type is a star.
  std::string ToString() const;
  // "/gpu:1", as people type it; "/gpu:*" where the index is open, "/*:1" where the type is.
  std::string ShortName() const;

  friend bool operator==(const DeviceName& a, const DeviceName& b) {
    return a.job == b.job && a.replica == b.replica && a.task == b.task && a.type == b.type &&
           a.index == b.index;
  }
  friend bool operator!=(const DeviceName& a, const DeviceName& b) { return !(a == b); }
};

// INVALID_ARGUMENT quoting `text` and the part of it that is wrong. A part said twice is wrong, unlike in
// TensorFlow's C++, which takes the last.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text);

// What both say together. Where they disagree: INVALID_ARGUMENT naming both and the part; but with
// `allow_soft_placement` a type or an index that they disagree about is left open.
absl::StatusOr<DeviceName> MergeDeviceNames(const DeviceName& name, const DeviceName& other,
                                            bool allow_soft_placement);
// What `name` says, and what it leaves open as `base` has it. An index goes with its type: that of another
// type is not taken over.
DeviceName OverrideDeviceName(const DeviceName& base, const DeviceName& name);
// `text` with what it leaves open as `basename` has it, which must be complete: INVALID_ARGUMENT.
absl::StatusOr<std::string> CanonicalDeviceName(absl::string_view text, absl::string_view basename);

// Whatever `pattern` says, `name` says too.
bool Matches(const DeviceName& pattern, const DeviceName& name);
// Some device is both.
bool Compatible(const DeviceName& a, const DeviceName& b);

}  // namespace cairn::worker

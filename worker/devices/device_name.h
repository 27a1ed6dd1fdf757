// Device names in TensorFlow's notation and with TensorFlow's rules (its DeviceNameUtils and Python's
// DeviceSpec): which parts may be left open, how two names are merged, and which devices a name matches.
// Values; any thread.
//
//   /job:worker/replica:0/task:3/device:GPU:1          a complete name
//   /device:GPU:1, /gpu:1, gpu:1                       short forms; types in any case, printed in upper case
//   /job:worker/device:GPU:*, GPU, /job:*, /, ""       a part that is missing or a star is open
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
  std::optional<std::string> type{};  // upper case: kCpu, kGpu, or a type that does not exist here
  std::optional<int> index{};

  bool complete() const { return job && replica && task && type && index; }
  // "/job:worker/replica:0/task:3/device:GPU:1". Open parts are left out; an open index of a known type is a
  // star.
  std::string ToString() const;
  // "/gpu:1", as users type it; "/gpu:*" if the index is open, "/*:1" if the type is.
  std::string ShortName() const;

  friend bool operator==(const DeviceName& a, const DeviceName& b) {
    return a.job == b.job && a.replica == b.replica && a.task == b.task && a.type == b.type &&
           a.index == b.index;
  }
  friend bool operator!=(const DeviceName& a, const DeviceName& b) { return !(a == b); }
};

// INVALID_ARGUMENT quoting `text` and the part that is wrong. A part that is given twice is an error;
// TensorFlow's C++ takes the last one.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view text);

// Combines both names. If they disagree: INVALID_ARGUMENT naming both and the part. With
// `allow_soft_placement`, a type or an index is left open instead if the names disagree about it.
absl::StatusOr<DeviceName> MergeDeviceNames(const DeviceName& name, const DeviceName& other,
                                            bool allow_soft_placement);
// `name`, with its open parts taken from `base`. The index of `base` is taken only if the types agree.
DeviceName OverrideDeviceName(const DeviceName& base, const DeviceName& name);
// `text`, with its open parts taken from `basename`. INVALID_ARGUMENT if `basename` is not complete.
absl::StatusOr<std::string> CanonicalDeviceName(absl::string_view text, absl::string_view basename);

// Whether `name` has every part that `pattern` sets, with the same value.
bool Matches(const DeviceName& pattern, const DeviceName& name);
// Whether some device matches both.
bool Compatible(const DeviceName& a, const DeviceName& b);

}  // namespace cairn::worker

// One rule of --place.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::worker {

// A rule such as "dense*=/gpu:1". `layers` is a pattern for layer names: * matches any characters, ? any
// single character, and [abc] one of a, b and c.
struct PlacementRule {
  std::string layers;
  std::string device;  // a DeviceName
};
// INVALID_ARGUMENT, quoting `text` or the name of the device, if it is not LAYERS=DEVICE.
absl::StatusOr<PlacementRule> ParsePlacementRule(absl::string_view text);

}  // namespace cairn::worker

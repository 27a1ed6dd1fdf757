#include "worker/devices/placement_rule.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/devices/device_name.h"

namespace cairn::worker {

absl::StatusOr<PlacementRule> ParsePlacementRule(absl::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not LAYERS=DEVICE, such as 'dense*=/gpu:1'"));
  }
  PlacementRule rule = {std::string(absl::StripAsciiWhitespace(text.substr(0, equals))),
                        std::string(absl::StripAsciiWhitespace(text.substr(equals + 1)))};
  CAIRN_RETURN_IF_ERROR(ParseDeviceName(rule.device));
  return rule;
}

}  // namespace cairn::worker

#include "cairn/status.h"

#include "absl/status/status.h"

namespace cairn {

std::string Status::ToString() const {
  if (ok()) return "OK";
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code_)) + ": " + message_;
}

}  // namespace cairn

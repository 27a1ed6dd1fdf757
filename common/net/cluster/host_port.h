// The address of a task: "host:port", "10.0.0.1:2222", "[::1]:2222".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

struct HostPort {
  std::string host;  // without brackets; names in lower case, IPv6 addresses in their shortest form
  int port = 0;      // 1 to 65535

  // INVALID_ARGUMENT quoting `text` and showing the expected form.
  static absl::StatusOr<HostPort> Parse(absl::string_view text);
  std::string ToString() const;  // with brackets around an IPv6 address
  friend bool operator==(const HostPort& a, const HostPort& b) {
    return a.host == b.host && a.port == b.port;
  }
};

}  // namespace cairn::net

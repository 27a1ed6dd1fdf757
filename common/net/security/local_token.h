// Shares the token of a job that `cairn train` runs on this machine with the user's other programs. The token
// is in a file that only the user can read, named after the port of the job's first server. `cairn status`,
// `cairn var` and workers that join later find the token there.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/cluster/host_port.h"
#include "common/net/security/access.h"

namespace cairn::net {

// Owns the file: the destructor removes it.
class LocalToken {
 public:
  // PERMISSION_DENIED if other users have access to the folder; else the error of the system.
  static absl::StatusOr<LocalToken> Publish(int port, absl::string_view token);
  ~LocalToken();
  LocalToken(LocalToken&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  LocalToken& operator=(LocalToken&&) = delete;

 private:
  explicit LocalToken(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: none
};

// Sets the token of `access` to the one that Publish() wrote to the file, if `access` has neither a token nor
// TLS and the host of `first_server` names this machine ("localhost", "127.0.0.1", "::1").
//
// Does nothing if there is no such file, or if other users have access to it.
void TakeLocalToken(const HostPort& first_server, Access& access);

}  // namespace cairn::net

// The job token of a job that `cairn train` runs on this machine, for the other programs of the same user: a
// file that only the user can read, named after the port of the job's first server. So `cairn status`, `cairn
// var` and workers that join later need not be told.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/access.h"
#include "common/net/host_port.h"

namespace cairn::net {

// The file, which is there as long as this is.
class LocalToken {
 public:
  // PERMISSION_DENIED where the folder is not this user's alone, or as the system says.
  static absl::StatusOr<LocalToken> Publish(int port, absl::string_view token);
  ~LocalToken();
  LocalToken(LocalToken&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  LocalToken& operator=(LocalToken&&) = delete;

 private:
  explicit LocalToken(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: none
};

// Takes the token from there, where `access` has neither a token nor TLS and `first_server` is on this
// machine by its name
// ("localhost", "127.0.0.1", "::1"). Does nothing where there is no such file, or it is not this user's
// alone.
void TakeLocalToken(const HostPort& first_server, Access& access);

}  // namespace cairn::net

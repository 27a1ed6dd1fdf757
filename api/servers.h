// Reaches the servers that ConnectOptions lists.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cairn/connect.h"
#include "client/transport/connection.h"

namespace cairn::api {

struct ReachArgs {
  const ConnectOptions& options;
  std::string task;            // for messages of the servers
  bool backups = false;        // whether the job keeps backups of each server's variables
  std::function<bool()> stop;  // client::ConnectionOptions::stop
};

// Blocks until all servers are reached. INVALID_ARGUMENT for an empty list, or for files that are not valid
// certificates or tokens; otherwise the errors of client::Connection::Open().
absl::StatusOr<std::unique_ptr<client::Connection>> ReachServers(const ReachArgs& args);

}  // namespace cairn::api

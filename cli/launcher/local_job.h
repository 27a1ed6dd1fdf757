// Preparations of `cairn train` and `cairn run` before they start the tasks of a job on this machine, and
// their log lines.
//
// Created by the command, after it has checked its flags; must outlive the tasks. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/launcher/ports.h"
#include "common/core/log.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"

namespace cairn::cli {

// Log lines of a launcher on stderr.
struct LauncherLog {
  const char* program;  // "cairn train"
  bool json = false;    // JSON objects, like those of the tasks
  void Write(const std::string& text, LogLevel level = LogLevel::kWarning) const;
};

struct LocalJob {
  struct Args {
    int servers = 1;
    int workers = 1;
    net::Access access;                 // has passed CheckAccess()
    std::string log_level = "warning";  // of the tasks
  };
  // Raises the limit on descriptors, reserves ports and publishes the job token. Logs what the user should
  // know. RESOURCE_EXHAUSTED if a limit of this process is too low for so many tasks; NOT_FOUND or another
  // error of the system if cairn-ps or cairn-worker is missing.
  static absl::StatusOr<LocalJob> Prepare(const Args& args, const LauncherLog& log);

  // "host:port" of each server.
  std::vector<std::string> servers() const;
  // This process's environment plus the job token: other users can read command lines, but not environments.
  std::vector<std::string> environment() const;
  // The flags of TLS for every task.
  std::vector<std::string> tls_flags() const;
  // The job's step, or nullopt if no server answers. Blocks for up to a second.
  std::optional<int64_t> step() const;
  // Tells the user how to watch the job.
  void PrintHowToWatch(const LauncherLog& log) const;

  std::string program_directory;  // contains cairn-ps and cairn-worker
  std::vector<ReservedPort> server_ports, worker_ports;
  // The given access with the job's token. If none was given: a random token for this run, or none if
  // certificates control the access.
  net::Access access;
  // The token for `cairn status` and other commands while the job runs.
  std::optional<net::LocalToken> published;
};

// The numbers of the ports.
std::vector<int> Numbers(const std::vector<ReservedPort>& ports);

}  // namespace cairn::cli

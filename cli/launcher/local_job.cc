#include "cli/launcher/local_job.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/launcher/job_step.h"
#include "cli/launcher/local_cluster.h"
#include "common/core/status.h"
#include "common/net/security/seal.h"
#include "common/system/limits.h"

namespace cairn::cli {
namespace {

// Time limit for querying the job's step after a task has failed.
constexpr auto kStepTimeout = std::chrono::seconds(1);

// The launcher opens some files for itself, and for each task a reserved port, a pipe for each stream of its
// output, and a pipe for errors at the start.
constexpr int64_t kOwnDescriptors = 12, kDescriptorsOfTask = 4;

// The directory of this program, which also contains cairn-ps and cairn-worker.
absl::StatusOr<std::string> ProgramDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    return absl::InternalError(
        absl::StrCat("cannot find the directory in which cairn is installed: ", error.message()));
  for (const char* program : {"cairn-ps", "cairn-worker"}) {
    const std::string path = self.parent_path() / program;
    if (access(path.c_str(), X_OK) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot start ", path));
  }
  return self.parent_path().string();
}

absl::StatusOr<std::vector<ReservedPort>> ReservePorts(int count) {
  std::vector<ReservedPort> ports;
  for (int i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(ReservedPort port, ReservedPort::Reserve());
    ports.push_back(std::move(port));
  }
  return ports;
}

// The tasks inherit the raised limit and check for themselves whether it is sufficient.
absl::Status EnterLimits(const LocalJob::Args& args, const LauncherLog& log) {
  const std::string raised = RaiseDescriptorLimit();
  if (!raised.empty() && args.log_level == "info") log.Write(raised);
  return CheckLimits(kOwnDescriptors + kDescriptorsOfTask * (args.servers + args.workers), /*threads=*/0);
}

}  // namespace

void LauncherLog::Write(const std::string& text, LogLevel level) const {
  const std::string line = json ? JsonLogLine(program, level, text) : absl::StrCat(program, ": ", text, "\n");
  std::fputs(line.c_str(), stderr);
}

absl::StatusOr<LocalJob> LocalJob::Prepare(const Args& args, const LauncherLog& log) {
  CAIRN_RETURN_IF_ERROR(EnterLimits(args, log));
  LocalJob job;
  CAIRN_ASSIGN_OR_RETURN(job.program_directory, ProgramDirectory());
  CAIRN_ASSIGN_OR_RETURN(job.server_ports, ReservePorts(args.servers));
  CAIRN_ASSIGN_OR_RETURN(job.worker_ports, ReservePorts(args.workers));
  job.access = args.access;
  if (!job.access.any()) job.access.token = net::HexOf(net::DrawSecret(32));
  if (!job.access.token.empty() && !job.server_ports.empty()) {
    auto published = net::LocalToken::Publish(job.server_ports.front().port(), job.access.token);
    if (published.ok()) {
      job.published.emplace(*std::move(published));
    } else {
      log.Write(absl::StrCat("other programs cannot find the job token: ", published.status().message()));
    }
  }
  return job;
}

std::vector<std::string> LocalJob::servers() const {
  std::vector<std::string> addresses;
  for (const ReservedPort& port : server_ports) addresses.push_back(LocalAddress(port.port()));
  return addresses;
}

std::vector<std::string> LocalJob::environment() const {
  const std::string variable = absl::StrCat(net::kTokenVariable, "=");
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, variable)) entries.emplace_back(*entry);
  }
  if (!access.token.empty()) entries.push_back(variable + access.token);
  return entries;
}

std::vector<std::string> LocalJob::tls_flags() const {
  if (!access.tls.any()) return {};
  return {absl::StrCat("--tls_cert=", access.tls.cert), absl::StrCat("--tls_key=", access.tls.key),
          absl::StrCat("--tls_ca=", access.tls.ca)};
}

std::optional<int64_t> LocalJob::step() const {
  return RequestStep(servers(), access, kStepTimeout);
}

void LocalJob::PrintHowToWatch(const LauncherLog& log) const {
  log.Write(absl::StrCat("watch this job: cairn status --watch --ps_hosts=", absl::StrJoin(servers(), ",")),
            LogLevel::kInfo);
}

std::vector<int> Numbers(const std::vector<ReservedPort>& ports) {
  std::vector<int> numbers;
  for (const ReservedPort& port : ports) numbers.push_back(port.port());
  return numbers;
}

}  // namespace cairn::cli

#include "cli/launcher/foreign_workers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/launcher/local_cluster.h"
#include "common/core/status.h"

namespace cairn::cli {
namespace {

bool IsFile(const std::string& path) {
  struct stat entry{};
  return stat(path.c_str(), &entry) == 0 && S_ISREG(entry.st_mode);
}

bool IsExecutable(const std::string& path) {
  return IsFile(path) && access(path.c_str(), X_OK) == 0;
}

bool HasInterpreter(const std::string& path) {
  char start[2] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return start[0] == '#' && start[1] == '!';
}

// The executable file `name` in the first directory of `path` that has one; empty if none has.
std::string FindOnPath(const std::string& name, const std::string& path) {
  for (const absl::string_view directory : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", name);
    if (IsExecutable(file)) return file;
  }
  return "";
}

absl::StatusOr<std::string> FileOf(const std::string& name, const std::string& path) {
  const bool has_slash = absl::StrContains(name, '/'), is_python = absl::EndsWith(name, ".py");
  const std::string found = has_slash || (is_python && IsFile(name)) ? "" : FindOnPath(name, path);
  if (!found.empty()) return found;
  if (has_slash || is_python) {
    if (access(name.c_str(), F_OK) != 0) {
      return absl::NotFoundError(absl::StrCat(name, ": no such file or directory"));
    }
    if (!IsFile(name)) return absl::InvalidArgumentError(absl::StrCat(name, ": not a file"));
    return has_slash ? name : absl::StrCat("./", name);
  }
  return absl::NotFoundError(
      absl::StrCat(name, ": no such program on PATH",
                   IsFile(name) ? absl::StrCat("; the one in this directory is ./", name) : ""));
}

std::string AddressList(const std::vector<int>& ports) {
  return absl::StrJoin(ports, ",", [](std::string* out, int port) { out->append(LocalAddress(port)); });
}

std::string TfConfig(const ForeignWorkersArgs& args, size_t worker) {
  const auto list = [](const std::vector<int>& ports) {
    return absl::StrJoin(ports, ", ", [](std::string* out, int port) {
      absl::StrAppend(out, "\"", LocalAddress(port), "\"");
    });
  };
  return absl::StrCat(R"({"cluster": {"ps": [)", list(args.server_ports), R"(], "worker": [)",
                      list(args.worker_ports), R"(]}, "task": {"type": "worker", "index": )", worker, "}}");
}

void Set(std::vector<std::string>& environment, absl::string_view name, absl::string_view value) {
  const std::string start = absl::StrCat(name, "=");
  environment.erase(std::remove_if(environment.begin(), environment.end(),
                                   [&](const std::string& entry) { return absl::StartsWith(entry, start); }),
                    environment.end());
  environment.push_back(absl::StrCat(start, value));
}

std::vector<std::string> EnvironmentOf(const ForeignWorkersArgs& args, size_t worker) {
  std::vector<std::string> environment = args.environment;
  const std::string rank = absl::StrCat(worker), size = absl::StrCat(args.worker_ports.size());
  Set(environment, "CAIRN_SERVERS", AddressList(args.server_ports));
  Set(environment, "CAIRN_WORKERS", AddressList(args.worker_ports));
  Set(environment, "CAIRN_REUSE_PORT", "1");
  Set(environment, "RANK", rank);
  Set(environment, "LOCAL_RANK", rank);
  Set(environment, "WORLD_SIZE", size);
  Set(environment, "LOCAL_WORLD_SIZE", size);
  Set(environment, "MASTER_ADDR", "127.0.0.1");
  Set(environment, "MASTER_PORT", absl::StrCat(args.master_port));
  Set(environment, "TF_CONFIG", TfConfig(args, worker));
  if (args.threads > 0) Set(environment, "OMP_NUM_THREADS", absl::StrCat(args.threads));
  SetUnlessGiven(environment, "OMP_NUM_THREADS", absl::StrCat(args.default_threads));
  SetUnlessGiven(environment, "OMP_WAIT_POLICY", "passive");
  SetUnlessGiven(environment, "PYTHONUNBUFFERED", "1");
  return environment;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveProgram(const std::vector<std::string>& program,
                                                        const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string file, FileOf(program.front(), path));
  std::vector<std::string> command = {file};
  if (absl::EndsWith(file, ".py") && !(IsExecutable(file) && HasInterpreter(file))) {
    std::string python = FindOnPath("python3", path);
    if (python.empty()) python = FindOnPath("python", path);
    if (python.empty()) {
      return absl::NotFoundError(absl::StrCat(program.front(), ": there is no python3 on PATH to run it"));
    }
    command = {std::move(python), program.front()};
  } else if (!IsExecutable(file)) {
    return absl::InvalidArgumentError(absl::StrCat(program.front(), ": not an executable file"));
  }
  command.insert(command.end(), program.begin() + 1, program.end());
  return command;
}

std::vector<Supervisor::Task> PlanForeignWorkers(const ForeignWorkersArgs& args) {
  std::vector<Supervisor::Task> tasks;
  for (size_t i = 0; i < args.worker_ports.size(); ++i) {
    tasks.push_back({.role = Supervisor::Role::kWorker,
                     .child = {.name = absl::StrCat("worker/", i),
                               .command = args.command,
                               .environment = EnvironmentOf(args, i),
                               .foreign = true},
                     .restarts = args.restarts});
  }
  return tasks;
}

}  // namespace cairn::cli

// The timelines of a cluster on this machine: each task writes its own file next to --trace_file, and all
// files are merged at the end. One thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/launcher/supervisor.h"
#include "common/trace/trace_session.h"

namespace cairn::cli {

class LocalTraces {
 public:
  // Adds the flags of a partial timeline to the command of each task. Does nothing without --trace_file.
  LocalTraces(TraceFlags flags, std::vector<Supervisor::Task>& tasks);

  // Writes the merged file and removes the partial ones. Call it after all tasks have ended. `missing`
  // receives the tasks that wrote no file because they were killed. On INVALID_ARGUMENT, or an error of
  // WriteFileAtomically(), the partial files are kept.
  absl::Status Merge(std::vector<std::string>& missing) const;

 private:
  struct Part {
    std::string task, file;
  };
  const TraceFlags flags_;
  std::vector<Part> parts_;
};

}  // namespace cairn::cli

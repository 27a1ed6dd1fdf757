// The timelines of a cluster on this machine: a file of each task beside the one that is wanted, merged at
// the end. One thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/supervisor.h"
#include "common/core/trace_session.h"

namespace cairn::cli {

class LocalTraces {
 public:
  // Adds to each task's command what makes it write its part. Nothing without --trace_file.
  LocalTraces(TraceFlags flags, std::vector<Supervisor::Task>& tasks);

  // After all tasks have ended: writes the file and removes the parts. `missing`: tasks that left none, since
  // they were killed. INVALID_ARGUMENT and what WriteFileAtomically() says; the parts stay then.
  absl::Status Merge(std::vector<std::string>& missing) const;

 private:
  struct Part {
    std::string task, file;
  };
  const TraceFlags flags_;
  std::vector<Part> parts_;
};

}  // namespace cairn::cli

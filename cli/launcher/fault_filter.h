// Shows each error of a job once. Without it, the output would repeat the error for every task: the task that
// failed logs it, the servers report it, and all other tasks log that report.
//
// Owned by the Supervisor; one thread.
#pragma once

#include <deque>
#include <string>

#include "absl/strings/string_view.h"

namespace cairn::cli {

class FaultFilter {
 public:
  // Returns `lines`, which are complete lines of the tasks' output, without repeated errors. An error ("E1126
  // 01:23:54.326 ps/0] the job failed: ...") counts as repeated if an earlier line has shown its text.
  std::string Pass(absl::string_view lines);

 private:
  bool IsNew(absl::string_view line);

  std::deque<std::string> shown_;  // texts of errors, oldest first
};

}  // namespace cairn::cli

// Shows each fault of a job once: the task that failed logs it, the servers report it, and every other task
// that hears of it logs it again.
//
// Owned by the Supervisor; one thread.
#pragma once

#include <deque>
#include <string>

#include "absl/strings/string_view.h"

namespace cairn::cli {

class FaultFilter {
 public:
  // Complete lines of the tasks' output without those errors ("E1126 01:23:54.326 ps/0] the job failed: ...")
  // whose text another line has shown. All other lines pass.
  std::string Pass(absl::string_view lines);

 private:
  bool IsNew(absl::string_view line);

  std::deque<std::string> shown_;  // texts of errors, oldest first
};

}  // namespace cairn::cli

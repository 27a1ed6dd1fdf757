// A program's timeline, from its flags to its file.
//
// Made by main before whatever records, and destroyed after it: then the file is written; and before that, in
// the background, when the steps that are wanted are over, so that a long job's need not be waited for, and
// again and again while they last, so that something is left when the task is killed. That takes a hundredth
// of one core at most.
//
// What a life of the task left that did not come to its end is kept: FILE becomes FILE.1, .2, ... when the
// next one begins.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/thread.h"
#include "common/core/trace.h"

namespace CLI {
class App;
}

namespace cairn {

// --trace_file and --trace_steps.
struct TraceFlags {
  std::string file;                   // empty: nothing is recorded
  std::optional<TraceSteps> steps{};  // none: all
};
void AddTraceFlags(CLI::App& app, TraceFlags& flags);

// "10:20"
absl::StatusOr<TraceSteps> ParseTraceSteps(absl::string_view text);

// Where earlier lives of a task that writes `file` have left theirs, the oldest first: FILE.1, FILE.2, ...
std::vector<std::string> EarlierLives(const std::string& file);

// INVALID_ARGUMENT naming the flag: steps without a file, a file that cannot be written.
absl::Status CheckTraceFlags(const TraceFlags& flags);

class TraceSession {
 public:
  // `task`: "worker/0".
  TraceSession(TraceFlags flags, const std::string& task);
  ~TraceSession();
  TraceSession(const TraceSession&) = delete;
  TraceSession& operator=(const TraceSession&) = delete;

  // Null where nothing is recorded.
  TraceRecorder* recorder() { return recorder_.get(); }

 private:
  void Watch();
  void Write(bool ended);

  const TraceFlags flags_;
  std::unique_ptr<TraceRecorder> recorder_;
  int64_t written_ = 0;  // events of the file; the thread's, and when it is gone the destructor's
  std::atomic<bool> stopping_{false};
  Thread thread_;  // last: everything above exists when it starts
};

}  // namespace cairn

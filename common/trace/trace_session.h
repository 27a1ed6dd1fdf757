// Records the timeline of a program if a flag requests it, and writes it to a file.
//
// Created by main before any object that records, and destroyed after them. The destructor writes the file. A
// background thread also writes it about a second after the last recorded step, so that a long job need not
// end first, and repeatedly while steps are recorded, so that a killed task leaves a timeline. This takes at
// most 1% of one core.
//
// If the previous life of the task did not end normally, its FILE is kept as FILE.1, FILE.2, ... when the
// next life begins.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/thread.h"
#include "common/trace/trace.h"

namespace CLI {
class App;
}

namespace cairn {

// --trace_file and --trace_steps.
struct TraceFlags {
  std::string file;                   // empty: nothing is recorded
  std::optional<TraceSteps> steps{};  // nullopt: all
};
void AddTraceFlags(CLI::App& app, TraceFlags& flags);

// Parses "10:20". INVALID_ARGUMENT quoting the text.
absl::StatusOr<TraceSteps> ParseTraceSteps(absl::string_view text);

// The existing files of earlier lives of a task that writes `file`, the oldest first: FILE.1, FILE.2, ...
std::vector<std::string> EarlierLives(const std::string& file);

// INVALID_ARGUMENT naming the flag, if there are steps without a file or the file cannot be written.
absl::Status CheckTraceFlags(const TraceFlags& flags);

class TraceSession {
 public:
  // `task`: "worker/0".
  TraceSession(TraceFlags flags, const std::string& task);
  ~TraceSession();
  TraceSession(const TraceSession&) = delete;
  TraceSession& operator=(const TraceSession&) = delete;

  // Null if nothing is recorded.
  TraceRecorder* recorder() { return recorder_.get(); }

 private:
  void Watch();
  void Write(bool ended);

  const TraceFlags flags_;
  std::unique_ptr<TraceRecorder> recorder_;
  // Events in the file. Used by `thread_`, and after it has ended by the destructor.
  int64_t written_ = 0;
  std::atomic<bool> stopping_{false};
  Thread thread_;  // declared last: it uses the members above
};

}  // namespace cairn

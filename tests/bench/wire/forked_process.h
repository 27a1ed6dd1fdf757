// A separate process for the other side of a measured connection.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cairn::bench {

// The child's connection to its parent.
class Forker {
 public:
  Forker(int words, int lifeline) : words_(words), lifeline_(lifeline) {}
  // Sends the parent what it needs to reach this process, at most 4096 bytes; called once. Ends this process
  // if the parent has died.
  void Report(std::string_view words) const;
  // Ends this process, without joining its threads, when the parent no longer needs it.
  [[noreturn]] void ExitWhenItIsDone() const;

 private:
  const int words_, lifeline_;
};

// Ends with this object, or with this process.
class ForkedProcess {
 public:
  // The child runs `serve`, which calls Report() and does not return; if it returns, it has failed. Forks, so
  // it must be called before this process has a second thread or uses gRPC.
  static absl::StatusOr<std::unique_ptr<ForkedProcess>> Start(absl::FunctionRef<void(const Forker&)> serve);
  ~ForkedProcess();

  pid_t pid() const { return pid_; }
  const std::string& told() const { return told_; }

 private:
  ForkedProcess(pid_t pid, int lifeline) : pid_(pid), lifeline_(lifeline) {}
  const pid_t pid_;
  const int lifeline_;
  std::string told_;
};

}  // namespace cairn::bench

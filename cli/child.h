// A child process that cannot outlive us: its own process group, killed by the kernel when we die.
//
// Owned by the Supervisor; one thread, the one that started it (the kernel's promise is bound to that
// thread).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output_lines.h"

namespace cairn::cli {

// How a process ended: by itself with a code, or by a signal.
struct ChildEnd {
  int exit_code = 0;  // 0 to 255; meaningless with a signal
  int signal = 0;     // 0: none
  bool clean() const { return signal == 0 && exit_code == 0; }
};

class Child {
 public:
  struct Args {
    std::string name;                      // "ps/0"
    std::vector<std::string> command;      // path and arguments
    std::vector<std::string> environment;  // "NAME=value", all of it
    bool shares_stdout = false;            // else what it prints there joins its stderr
  };
  // Its stdin is empty, its stderr comes to us. Fails with the reason when the program cannot be executed.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const Args& args);
  // Kills and reaps the process group if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  bool running() const { return !end_.has_value(); }
  const std::optional<ChildEnd>& end() const { return end_; }

  // To the whole group; nothing happens when it has ended.
  void Signal(int signal);
  // Reaps it if it has ended, with whatever it left running in its group. Does not block.
  bool TryReap();

  // Readable when output waits; -1 after its end. Poll it.
  int output_fd() const { return output_; }
  // The complete lines that wait, prefixed. Does not block.
  std::string ReadOutput();
  // The same, and the unfinished last line: after the end.
  std::string FinishOutput();

 private:
  Child(std::string name, pid_t pid, int output)
      : name_(std::move(name)), pid_(pid), output_(output), lines_(name_) {}

  const std::string name_;
  const pid_t pid_;
  int output_;
  OutputLines lines_;
  std::optional<ChildEnd> end_;
};

}  // namespace cairn::cli

// A child process with its own process group. The kernel kills it when this process dies.
//
// Owned by the Supervisor; used only by the thread that started it, because PR_SET_PDEATHSIG is bound to that
// thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launcher/output_lines.h"

namespace cairn::cli {

// How a process ended: it exited with a code, or a signal killed it.
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
    std::vector<std::string> environment;  // the complete environment: "NAME=value"
    bool shares_stdout = false;            // false: stdout is redirected to stderr
    // Not a program of Cairn: its stdout has a pipe of its own, and all its lines are prefixed.
    bool foreign = false;
  };
  enum Stream { kStderr, kStdout };
  // Starts the program with an empty stdin; its output is read with ReadOutput(). Fails if the program cannot
  // be executed.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const Args& args);
  // Kills and reaps the process group if it is still running.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  bool running() const { return !end_.has_value(); }
  const std::optional<ChildEnd>& end() const { return end_; }

  // Sends `signal` to the whole process group. Does nothing if the child has ended.
  void Signal(int signal);
  // Reaps the child if it has ended, and kills all other processes of its group. Returns whether the child
  // has ended. Does not block.
  bool TryReap();

  // Pollable descriptor, readable when there is output; -1 after the end of the output, or if this process
  // does not read the stream.
  int output_fd(Stream stream) const { return outputs_[stream].fd; }
  // Returns the complete lines that are available, prefixed. Does not block.
  std::string ReadOutput(Stream stream);
  // Like ReadOutput(), plus the unfinished last line. To be called after the child has ended.
  std::string FinishOutput(Stream stream);

 private:
  struct Output {
    int fd;
    OutputLines lines;
  };
  Child(const Args& args, pid_t pid, int stderr_fd, int stdout_fd)
      : name_(args.name),
        pid_(pid),
        outputs_{{stderr_fd, OutputLines(name_, args.foreign)},
                 {stdout_fd, OutputLines(name_, args.foreign)}} {}

  const std::string name_;
  const pid_t pid_;
  Output outputs_[2];  // [Stream]
  std::optional<ChildEnd> end_;
};

}  // namespace cairn::cli

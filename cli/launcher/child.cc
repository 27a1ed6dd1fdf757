#include "cli/launcher/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::cli {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildSide {
  char* const* command;
  char* const* environment;
  pid_t parent;
  // The write ends of the pipes for stderr, for stdout (-1: none), and for the errno of a failed exec.
  int err, out, trouble;
  bool shares_stdout;
};

// Runs between fork and exec: only async-signal-safe functions are allowed.
[[noreturn]] void BecomeChild(const ChildSide& side) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != side.parent) _exit(1);  // the parent died before prctl()
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(side.err, STDERR_FILENO);
  if (!side.shares_stdout) dup2(side.out >= 0 ? side.out : side.err, STDOUT_FILENO);
  // Lets a background process group write to a terminal with `stty tostop`.
  signal(SIGTTOU, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(side.command[0], side.command, side.environment);
  const int reason = errno;
  if (write(side.trouble, &reason, sizeof reason) < 0) _exit(126);
  _exit(127);
}

// A pipe whose ends are closed with it, unless they were released.
class Pipe {
 public:
  static absl::StatusOr<Pipe> Open() {
    Pipe opened;
    if (pipe2(opened.ends_, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe");
    return opened;
  }
  Pipe() = default;
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  Pipe(Pipe&& other) noexcept : ends_{std::exchange(other.ends_[0], -1), std::exchange(other.ends_[1], -1)} {}
  Pipe& operator=(Pipe&& other) noexcept {
    std::swap(ends_, other.ends_);
    return *this;
  }

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void CloseWriteEnd() { close(std::exchange(ends_[1], -1)); }
  // The read end, which becomes non-blocking; -1 if the pipe was never opened.
  int ReleaseReadEnd() {
    if (ends_[0] >= 0) fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    return std::exchange(ends_[0], -1);
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const Args& args) {
  const std::vector<char*> command = Pointers(args.command);
  const std::vector<char*> environment = Pointers(args.environment);
  CAIRN_ASSIGN_OR_RETURN(Pipe err, Pipe::Open());
  CAIRN_ASSIGN_OR_RETURN(Pipe trouble, Pipe::Open());
  Pipe out;
  if (args.foreign) {
    CAIRN_ASSIGN_OR_RETURN(out, Pipe::Open());
  }

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild({.command = command.data(),
                 .environment = environment.data(),
                 .parent = parent,
                 .err = err.write_end(),
                 .out = out.write_end(),
                 .trouble = trouble.write_end(),
                 .shares_stdout = args.shares_stdout});
  }
  int reason = pid < 0 ? errno : 0;
  trouble.CloseWriteEnd();
  if (pid > 0) {
    // The child makes this call too. After the first of the two calls, signals to the group arrive.
    setpgid(pid, pid);
    // The read ends at the exec, which closes the write end.
    if (read(trouble.read_end(), &reason, sizeof reason) != static_cast<ssize_t>(sizeof reason)) reason = 0;
    if (reason != 0) waitpid(pid, nullptr, 0);
  }
  if (reason != 0) {
    return absl::ErrnoToStatus(reason, absl::StrCat("cannot start ", args.command[0], " for ", args.name));
  }
  return std::unique_ptr<Child>(new Child(args, pid, err.ReleaseReadEnd(), out.ReleaseReadEnd()));
}

Child::~Child() {
  if (running()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const Output& output : outputs_) {
    if (output.fd >= 0) close(output.fd);
  }
}

void Child::Signal(int signal) {
  if (running()) kill(-pid_, signal);
}

bool Child::TryReap() {
  siginfo_t info{};
  if (!running() || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  // The id of a zombie is not reused, so this kills the child's own group.
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  end_ =
      info.si_code == CLD_EXITED ? ChildEnd{.exit_code = info.si_status} : ChildEnd{.signal = info.si_status};
  return true;
}

std::string Child::ReadOutput(Stream stream) {
  Output& output = outputs_[stream];
  std::string lines;
  char buffer[4096];
  while (output.fd >= 0) {
    const ssize_t count = read(output.fd, buffer, sizeof buffer);
    if (count > 0) {
      lines += output.lines.Add({buffer, static_cast<size_t>(count)});
      if (lines.size() > 64 * 1024) break;  // a child that writes endlessly must not block the supervisor
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      if (count == 0 || errno != EAGAIN) {
        close(output.fd);
        output.fd = -1;
      }
      break;
    }
  }
  return lines;
}

std::string Child::FinishOutput(Stream stream) {
  std::string lines = ReadOutput(stream);
  return lines + outputs_[stream].lines.Finish();
}

}  // namespace cairn::cli

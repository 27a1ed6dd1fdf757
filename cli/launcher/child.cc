#include "cli/launcher/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"

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
  int output;   // the write end of the pipe for the child's output
  int trouble;  // the write end of the pipe for the errno of a failed exec
  bool shares_stdout;
};

// Runs between fork and exec: only async-signal-safe functions are allowed.
[[noreturn]] void BecomeChild(const ChildSide& side) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != side.parent) _exit(1);  // the parent died before prctl()
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(side.output, STDERR_FILENO);
  if (!side.shares_stdout) dup2(side.output, STDOUT_FILENO);
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

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const Args& args) {
  const std::vector<char*> command = Pointers(args.command);
  const std::vector<char*> environment = Pointers(args.environment);
  int output[2], trouble[2];
  if (pipe2(output, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe");
  if (pipe2(trouble, O_CLOEXEC) != 0) {
    const int reason = errno;
    close(output[0]);
    close(output[1]);
    return absl::ErrnoToStatus(reason, "cannot create a pipe");
  }

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeChild({.command = command.data(),
                 .environment = environment.data(),
                 .parent = parent,
                 .output = output[1],
                 .trouble = trouble[1],
                 .shares_stdout = args.shares_stdout});
  }
  int reason = pid < 0 ? errno : 0;
  close(output[1]);
  close(trouble[1]);
  if (pid > 0) {
    // The child makes this call too. After the first of the two calls, signals to the group arrive.
    setpgid(pid, pid);
    // The read ends at the exec, which closes the write end.
    if (read(trouble[0], &reason, sizeof reason) != static_cast<ssize_t>(sizeof reason)) reason = 0;
    if (reason != 0) waitpid(pid, nullptr, 0);
  }
  close(trouble[0]);
  if (reason != 0) {
    close(output[0]);
    return absl::ErrnoToStatus(reason, absl::StrCat("cannot start ", args.command[0], " for ", args.name));
  }
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Child>(new Child(args.name, pid, output[0]));
}

Child::~Child() {
  if (running()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
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

std::string Child::ReadOutput() {
  std::string lines;
  char buffer[4096];
  while (output_ >= 0) {
    const ssize_t count = read(output_, buffer, sizeof buffer);
    if (count > 0) {
      lines += lines_.Add({buffer, static_cast<size_t>(count)});
      if (lines.size() > 64 * 1024) break;  // a child that writes endlessly must not block the supervisor
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      if (count == 0 || errno != EAGAIN) {
        close(output_);
        output_ = -1;
      }
      break;
    }
  }
  return lines;
}

std::string Child::FinishOutput() {
  std::string lines = ReadOutput();
  return lines + lines_.Finish();
}

}  // namespace cairn::cli

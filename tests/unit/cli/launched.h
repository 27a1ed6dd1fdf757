// A Supervisor in its own process, for tests. A test can read its log and stdout, signal it, and check
// whether any process that it started is still running.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cli/launcher/supervisor.h"

namespace cairn::cli {

constexpr int kLimitMs = 20'000;  // for every wait

class Launched {
 public:
  Launched(const std::vector<Supervisor::Task>& tasks, Supervisor::Options options) {
    EXPECT_EQ(pipe2(log_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(stdout_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe(alive_), 0);  // inherited by all started processes: end-of-file means that all have ended
    pid_ = fork();
    if (pid_ == 0) {
      dup2(stdout_[1], STDOUT_FILENO);
      options.log_fd = log_[1];
      _exit(Supervisor(options).Run(tasks));
    }
    close(log_[1]);
    close(stdout_[1]);
    close(alive_[1]);
  }
  ~Launched() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {log_[0], stdout_[0], alive_[0]}) close(fd);
  }

  void Signal(int signal) { kill(pid_, signal); }

  // Waits until the log contains `text`. Returns false if the log ends or the limit expires first.
  bool Logs(const std::string& text) {
    while (!absl::StrContains(log_text_, text)) {
      if (!ReadSome(log_[0], log_text_)) return false;
    }
    return true;
  }

  // Returns the launcher's exit code, or minus the signal that killed it. Reads the log and stdout to their
  // end.
  int Wait() {
    while (ReadSome(log_[0], log_text_)) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    while (ReadSome(stdout_[0], stdout_text_)) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Call after Wait(). Returns true once all processes that the launcher started have ended.
  bool NothingLeft() {
    std::string unused;
    while (ReadSome(alive_[0], unused)) {
    }
    return ended_;
  }

  const std::string& log() const { return log_text_; }
  const std::string& out() const { return stdout_text_; }

 private:
  bool ReadSome(int fd, std::string& text) {
    pollfd event{fd, POLLIN, 0};
    ended_ = false;
    if (poll(&event, 1, kLimitMs) <= 0) {
      ADD_FAILURE() << "nothing to read within the limit; so far: " << log_text_;
      return false;
    }
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    ended_ = count == 0;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  int log_[2], stdout_[2], alive_[2];
  pid_t pid_;
  bool ended_ = false;
  std::string log_text_, stdout_text_;
};

// A task that is a shell script.
inline Supervisor::Task Script(Supervisor::Role role, const std::string& name, const std::string& script) {
  return {.role = role,
          .child = {.name = name,
                    .command = {"/bin/sh", "-c", script},
                    .environment = {"PATH=/usr/bin:/bin"},
                    .shares_stdout = role == Supervisor::Role::kChief}};
}

}  // namespace cairn::cli

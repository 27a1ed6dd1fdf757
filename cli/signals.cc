#include "cli/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "common/core/status.h"

namespace cairn::cli {

SignalQueue::SignalQueue() {
  signal(SIGCHLD, SIG_DFL);  // some parents leave it ignored, and then children cannot be waited for
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&mask, number);
  CAIRN_CHECK(pthread_sigmask(SIG_BLOCK, &mask, &old_mask_) == 0);
  fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  CAIRN_CHECK(fd_ >= 0);
}

SignalQueue::~SignalQueue() {
  while (Next().has_value()) {  // what came too late must not hit whoever comes next
  }
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalQueue::Next() {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace cairn::cli

#include "common/system/signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/system/process_start.h"

namespace cairn {
namespace {

bool IsIgnored(int number) {
  struct sigaction action{};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : signals) {
    if (number == SIGHUP && IsIgnored(SIGHUP)) continue;
    // If the parent process left SIGCHLD ignored, this process could not wait for its children.
    if (number == SIGCHLD) signal(SIGCHLD, SIG_DFL);
    sigaddset(&mask, number);
  }
  CAIRN_CHECK(pthread_sigmask(SIG_BLOCK, &mask, &old_mask_) == 0);
  fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0)
    EndProcess(absl::StrCat("cannot create a file descriptor for signals: ", std::strerror(errno)));
}

SignalQueue::~SignalQueue() {
  while (Next().has_value()) {  // a late signal must not be delivered once the mask is restored
  }
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

std::optional<int> SignalQueue::Next() {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::optional<int> SignalQueue::WaitFor(std::chrono::milliseconds limit) {
  pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
  poll(&waiting, 1, static_cast<int>(limit.count()));
  return Next();
}

}  // namespace cairn

#include "common/system/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace cairn {

void OccupyStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `stream`. It is opened in the wrong direction, so that
    // every use of it fails.
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

void IgnoreBrokenPipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

absl::Status FlushStandardOutput() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  int reason = errno;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return absl::OkStatus();
  // An earlier write failed and its errno is lost: writing one more byte fails for the same reason.
  if (reason == 0 && write(STDOUT_FILENO, "\n", 1) < 0) reason = errno;
  return absl::UnknownError(absl::StrCat("cannot write to standard output",
                                         reason != 0 ? absl::StrCat(": ", std::strerror(reason)) : ""));
}

}  // namespace cairn

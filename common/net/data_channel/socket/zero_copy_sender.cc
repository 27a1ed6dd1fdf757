#include "common/net/data_channel/socket/zero_copy_sender.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {
namespace {

// The size of the pipe: one fragment of a payload (DataStream::kFragmentFloats) passes through it at a time.
// The system limits the total size of a user's pipes. With the default size of 64 KiB, each byte would cost
// 50 % more.
constexpr int kPipeBytes = 256 << 10;

// splice(2) has no equivalent of send(2)'s MSG_NOSIGNAL, so a closed socket would end the process. splice(2)
// may also find the socket closed after it has moved some of the bytes.
ssize_t SpliceWithoutSigpipe(int from, int to, size_t count, unsigned flags) {
  sigset_t sigpipe, before, pending;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
  sigpending(&pending);
  const ssize_t taken = splice(from, nullptr, to, nullptr, count, flags);
  const int error = errno;
  if (taken != static_cast<ssize_t>(count) && sigismember(&pending, SIGPIPE) == 0) {
    const timespec at_once{};
    (void)sigtimedwait(&sigpipe, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return taken;
}

size_t BytesIn(absl::Span<const iovec> runs) {
  size_t bytes = 0;
  for (const iovec& run : runs) bytes += run.iov_len;
  return bytes;
}

bool IsToRepeat(int error) {
  return error == EAGAIN || error == EINTR;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZeroCopySender>> ZeroCopySender::Open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return SystemFailure("cannot create a pipe");
  std::unique_ptr<ZeroCopySender> pipe(new ZeroCopySender());
  pipe->out_ = FileDescriptor(ends[0]);
  pipe->in_ = FileDescriptor(ends[1]);
  if (fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes) < 0) return SystemFailure("cannot enlarge a pipe to 256 KiB");
  return pipe;
}

absl::StatusOr<size_t> ZeroCopySender::Send(const FileDescriptor& socket, absl::Span<const iovec> runs) {
  if (queued_ == 0) {
    const ssize_t queued = vmsplice(in_.get(), runs.data(), runs.size(), SPLICE_F_NONBLOCK);
    if (queued < 0 && !IsToRepeat(errno)) return SystemFailure("vmsplice");
    if (queued <= 0) return 0;
    queued_ = static_cast<size_t>(queued);
  }
  const unsigned more = queued_ < BytesIn(runs) ? SPLICE_F_MORE : 0;
  const ssize_t taken = SpliceWithoutSigpipe(out_.get(), socket.get(), queued_, SPLICE_F_NONBLOCK | more);
  if (taken < 0 && !IsToRepeat(errno)) return SystemFailure("splice");
  if (taken <= 0) return 0;
  queued_ -= static_cast<size_t>(taken);
  return static_cast<size_t>(taken);
}

}  // namespace cairn::net

#include "common/net/data_channel/shared_memory/peer_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {

namespace {

// Linux 6.5 added this option, and older headers lack it.
#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;
#endif

// Returns a pidfd of the process that connected. On an older kernel, the pidfd refers to the process that has
// this ID now; Open() accepts only processes of the same user.
FileDescriptor PidfdOf(int socket, pid_t process) {
  int process_fd = -1;
  socklen_t size = sizeof process_fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process_fd, &size) == 0)
    return FileDescriptor(process_fd);
  if (errno != ENOPROTOOPT) return FileDescriptor();  // the process has ended
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::Open(int socket, const Probe& probe) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (probe.address == 0 || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0 ||
      peer.uid != geteuid()) {
    return nullptr;
  }
  FileDescriptor process_fd = PidfdOf(socket, peer.pid);
  if (!process_fd.valid()) return nullptr;
  std::unique_ptr<PeerMemory> memory(new PeerMemory(socket, peer.pid, std::move(process_fd)));
  uint64_t value = 0;
  const BorrowedRun run = {.address = probe.address, .bytes = sizeof value};
  const absl::Span<char> to(reinterpret_cast<char*>(&value), sizeof value);
  const absl::Status read = memory->Read({&run, 1}, 0, {&to, 1});
  return read.ok() && value == probe.value ? std::move(memory) : nullptr;
}

absl::Status PeerMemory::Read(absl::Span<const BorrowedRun> runs, uint64_t begin,
                              absl::Span<const absl::Span<char>> to) const {
  absl::Status copied;
  while (copied.ok() && !to.empty()) {
    const auto places = to.first(std::min<size_t>(to.size(), IOV_MAX));
    copied = Copy(runs, begin, places);
    for (const absl::Span<char>& place : places) begin += place.size();
    to.remove_prefix(places.size());
  }
  // Checked after the copy, even if the copy failed. A peer that has closed the socket may have overwritten
  // the memory. The process ID of a peer that has ended may belong to another process.
  CAIRN_RETURN_IF_ERROR(CheckPeer());
  return copied;
}

absl::Status PeerMemory::CheckPeer() const {
  pollfd ready[2] = {{.fd = socket_, .events = POLLRDHUP, .revents = 0},
                     {.fd = process_fd_.get(), .events = POLLIN, .revents = 0}};
  return poll(ready, std::size(ready), 0) == 0 ? absl::OkStatus() : OtherEndClosed();
}

absl::Status PeerMemory::Copy(absl::Span<const BorrowedRun> runs, uint64_t begin,
                              absl::Span<const absl::Span<char>> to) const {
  absl::InlinedVector<iovec, 8> from, into;
  size_t bytes = 0;
  for (const absl::Span<char>& place : to) {
    into.push_back({place.data(), place.size()});
    bytes += place.size();
  }
  size_t left = bytes;
  for (const BorrowedRun& run : runs) {
    if (left == 0) break;
    if (begin >= run.bytes) {
      begin -= run.bytes;
      continue;
    }
    const size_t count = std::min<uint64_t>(left, run.bytes - begin);
    from.push_back({reinterpret_cast<void*>(run.address + begin), count});
    left -= count;
    begin = 0;
  }
  if (left > 0)
    return absl::InvalidArgumentError(absl::StrCat(left, " bytes lie beyond the end of the payload"));
  const ssize_t got = process_vm_readv(process_, into.data(), into.size(), from.data(), from.size(), 0);
  if (got == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  if (got < 0 && errno != EFAULT) return SystemFailure("reading borrowed memory");
  // A short read ends at a missing page.
  return absl::InvalidArgumentError("borrowed memory: no such address");
}

}  // namespace cairn::net

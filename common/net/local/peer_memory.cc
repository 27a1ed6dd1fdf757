#include "common/net/local/peer_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {

std::unique_ptr<PeerMemory> PeerMemory::Open(int socket, const Probe& probe) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (probe.address == 0 || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) {
    return nullptr;
  }
  std::unique_ptr<PeerMemory> memory(new PeerMemory(socket, peer.pid));
  uint64_t value = 0;
  const LentRun run = {.address = probe.address, .bytes = sizeof value};
  const absl::Status read = memory->Read({&run, 1}, 0, {reinterpret_cast<char*>(&value), sizeof value});
  return read.ok() && value == probe.value ? std::move(memory) : nullptr;
}

absl::Status PeerMemory::Read(absl::Span<const LentRun> runs, uint64_t begin, absl::Span<char> to) const {
  CAIRN_RETURN_IF_ERROR(Copy(runs, begin, to));
  // After the copy: a process that has ended has closed it as well, before another could have its number.
  pollfd socket = {.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (poll(&socket, 1, 0) > 0) return absl::UnavailableError("the other end closed the stream");
  return absl::OkStatus();
}

absl::Status PeerMemory::Copy(absl::Span<const LentRun> runs, uint64_t begin, absl::Span<char> to) const {
  absl::InlinedVector<iovec, 8> from;
  size_t left = to.size();
  for (const LentRun& run : runs) {
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
  if (left > 0) return absl::InvalidArgumentError(absl::StrCat(left, " bytes behind what is lent"));
  absl::Span<iovec> parts = absl::MakeSpan(from);
  while (!to.empty()) {
    const iovec into = {to.data(), to.size()};
    const ssize_t got = process_vm_readv(process_, &into, 1, parts.data(), parts.size(), 0);
    if (got <= 0) {
      const auto why = absl::StrCat("lent memory: ", std::strerror(errno));
      return errno == EFAULT ? absl::InvalidArgumentError(why) : absl::UnavailableError(why);
    }
    to.remove_prefix(static_cast<size_t>(got));
    // It stops short only between two runs.
    for (auto done = static_cast<size_t>(got); done > 0;) {
      const size_t of_first = std::min(done, parts.front().iov_len);
      parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + of_first;
      parts.front().iov_len -= of_first;
      done -= of_first;
      if (parts.front().iov_len == 0) parts.remove_prefix(1);
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::net

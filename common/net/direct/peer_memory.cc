#include "common/net/direct/peer_memory.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/direct/socket.h"

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
  const absl::Span<char> to(reinterpret_cast<char*>(&value), sizeof value);
  const absl::Status read = memory->Read({&run, 1}, 0, {&to, 1});
  return read.ok() && value == probe.value ? std::move(memory) : nullptr;
}

absl::Status PeerMemory::Read(absl::Span<const LentRun> runs, uint64_t begin,
                              absl::Span<const absl::Span<char>> to) const {
  absl::Status copied;
  while (copied.ok() && !to.empty()) {
    const auto places = to.first(std::min<size_t>(to.size(), IOV_MAX));
    copied = Copy(runs, begin, places);
    for (const absl::Span<char>& place : places) begin += place.size();
    to.remove_prefix(places.size());
  }
  // After the copy, whatever came of it: who has closed may have given the memory back. A process that has
  // ended closed before another could have its number.
  CAIRN_RETURN_IF_ERROR(CheckOtherEnd(socket_));
  return copied;
}

absl::Status PeerMemory::Copy(absl::Span<const LentRun> runs, uint64_t begin,
                              absl::Span<const absl::Span<char>> to) const {
  absl::InlinedVector<iovec, 8> from, into;
  size_t bytes = 0;
  for (const absl::Span<char>& place : to) {
    into.push_back({place.data(), place.size()});
    bytes += place.size();
  }
  size_t left = bytes;
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
  const ssize_t got = process_vm_readv(process_, into.data(), into.size(), from.data(), from.size(), 0);
  if (got == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  if (got < 0 && errno != EFAULT) return SystemFailure("lent memory");
  return absl::InvalidArgumentError("lent memory: it is not there");  // it stops where a page is missing
}

}  // namespace cairn::net

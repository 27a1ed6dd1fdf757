// The memory of the process at the other end of a socket, read without its doing (process_vm_readv(2)): bytes
// that it lends go from its memory to their place in one copy, where a ring takes two and a socket three.
//
// It is open to processes of one user that see each other's numbers (containers as a rule do not), as far as
// the system lets these trace each other at all (kernel.yama.ptrace_scope). A server of root, which could
// read anybody's memory, reads that of root alone. The process is held by a pidfd: when it has ended, its
// number may be another's, and what was read then is refused.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

// A run of bytes in the lender's memory.
struct LentRun {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

class PeerMemory {
 public:
  // What the other end says that it holds at `address`: whoever finds it there reads the memory of that end.
  struct Probe {
    uint64_t address = 0;  // 0: it lends nothing
    uint64_t value = 0;
  };

  // Null when that memory cannot be read from here, or the other end is another user's. `socket` outlives it.
  static std::unique_ptr<PeerMemory> Open(int socket, const Probe& probe);

  // Copies what `runs` are together, from byte `begin` on, to one place after another. What has been copied
  // is what the other end had lent: it takes its memory back, to write there, only after it has closed the
  // socket, and what was copied when it may have done so is UNAVAILABLE. INVALID_ARGUMENT for an address that
  // it does not have.
  absl::Status Read(absl::Span<const LentRun> runs, uint64_t begin,
                    absl::Span<const absl::Span<char>> to) const;

 private:
  PeerMemory(int socket, pid_t process, FileDescriptor held)
      : socket_(socket), process_(process), held_(std::move(held)) {}
  // The process that connected is there, and has not closed the socket.
  absl::Status CheckPeer() const;
  absl::Status Copy(absl::Span<const LentRun> runs, uint64_t begin,
                    absl::Span<const absl::Span<char>> to) const;

  const int socket_;
  const pid_t process_;
  const FileDescriptor held_;  // a pidfd of process_: readable when it has ended
};

}  // namespace cairn::net

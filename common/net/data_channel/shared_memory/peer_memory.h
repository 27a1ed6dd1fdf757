// Reads borrowed payloads: memory of the process at the other end of a socket, read without its help
// (process_vm_readv(2)). The bytes reach their destination in one copy, where a ring needs two and a socket
// three.
//
// It works between processes of one user that see each other's process IDs (containers usually do not), as
// far as the system lets one trace the other (kernel.yama.ptrace_scope). A server that runs as root could
// read any process, but only reads processes of root. The ID of a process that has ended may be reused, so a
// pidfd is checked after each copy: if the other process has ended, the copied bytes are rejected.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

// A run of bytes in the sender's memory.
struct BorrowedRun {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

class PeerMemory {
 public:
  // An address in the memory of the other end, and the value there. A reader that finds this value at the
  // address is reading the memory of the right process.
  struct Probe {
    uint64_t address = 0;  // 0: the other end shares no memory
    uint64_t value = 0;
  };

  // Null if the memory cannot be read from here, or if the other end belongs to another user. `socket` must
  // outlive the object.
  static std::unique_ptr<PeerMemory> Open(int socket, const Probe& probe);

  // Copies from the concatenation of `runs`, from byte `begin` on, into the spans of `to` in turn. OK means
  // that the bytes are those of the payload: the sender overwrites borrowed memory only after it has shut the
  // socket down. UNAVAILABLE if that may have happened before the copy ended. INVALID_ARGUMENT for an address
  // that the sender does not have.
  absl::Status Read(absl::Span<const BorrowedRun> runs, uint64_t begin,
                    absl::Span<const absl::Span<char>> to) const;

 private:
  PeerMemory(int socket, pid_t process, FileDescriptor process_fd)
      : socket_(socket), process_(process), process_fd_(std::move(process_fd)) {}
  // OK if the process that connected still runs and has not closed the socket.
  absl::Status CheckPeer() const;
  absl::Status Copy(absl::Span<const BorrowedRun> runs, uint64_t begin,
                    absl::Span<const absl::Span<char>> to) const;

  const int socket_;
  const pid_t process_;
  const FileDescriptor process_fd_;  // a pidfd of process_, readable once the process has ended
};

}  // namespace cairn::net

// Zero-copy sending of pinned payloads: the socket refers to the sender's pages (vmsplice(2), splice(2))
// until the other end has read them. The memory must not change until the other end has confirmed that it has
// read the payload, or knows that whatever it reads from now on is invalid.
//
// Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

class ZeroCopySender {
 public:
  // UNAVAILABLE if the system does not support this, or has no more pipes.
  static absl::StatusOr<std::unique_ptr<ZeroCopySender>> Open();

  // Sends from `runs` and returns how many bytes the socket, which must be non-blocking, has taken; 0 if the
  // socket has no room. The next call must begin after these bytes. After an error the object must not be
  // used again; if the socket is the cause, the next send on it reports the reason.
  absl::StatusOr<size_t> Send(const FileDescriptor& socket, absl::Span<const iovec> runs);

 private:
  ZeroCopySender() = default;

  FileDescriptor in_, out_;
  size_t queued_ = 0;  // bytes in the pipe
};

}  // namespace cairn::net

// Memory on its way into a socket without being copied: the socket refers to its pages (vmsplice(2),
// splice(2)) until the other end has read them. So the memory must stay as it is until that end says so, or
// knows that what it reads from now on does not count.
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

class PagePipe {
 public:
  // UNAVAILABLE where the system has no such thing, or no more pipes.
  static absl::StatusOr<std::unique_ptr<PagePipe>> Open();

  // How many bytes of `runs` the socket, which must not block, has taken now; 0: it has no room. The next
  // call begins with what it has not taken. After a failure, whose reason the socket itself may tell, this is
  // of no use any more.
  absl::StatusOr<size_t> Send(const FileDescriptor& socket, absl::Span<const iovec> runs);

 private:
  PagePipe() = default;

  FileDescriptor in_, out_;
  size_t queued_ = 0;  // bytes in the pipe
};

}  // namespace cairn::net

// An event that one thread raises and another awaits with poll(2) or epoll(7): eventfd(2). Any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "common/core/file_descriptor.h"

namespace cairn::net {

class EventFd {
 public:
  EventFd() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  // False if the system had no file descriptor left.
  bool valid() const { return descriptor_.valid(); }
  // Readable from Raise() until Clear().
  const FileDescriptor& descriptor() const { return descriptor_; }
  void Raise() const {
    const uint64_t one = 1;
    (void)!write(descriptor_.get(), &one, sizeof one);
  }
  void Clear() const {
    uint64_t raised;
    (void)!read(descriptor_.get(), &raised, sizeof raised);
  }

 private:
  const FileDescriptor descriptor_;
};

}  // namespace cairn::net

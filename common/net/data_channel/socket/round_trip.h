// The network distance of the other end of a TCP connection.
#pragma once

#include <chrono>

#include "common/core/file_descriptor.h"

namespace cairn::net {

// The shortest round trip that the system has measured recently, which excludes time spent in queues; 0 if
// the system does not report it. Any thread.
std::chrono::microseconds LeastRoundTrip(const FileDescriptor& socket);

}  // namespace cairn::net

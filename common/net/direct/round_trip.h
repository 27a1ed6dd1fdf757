// How far away the other end of a TCP connection is.
#pragma once

#include <chrono>

#include "common/core/file_descriptor.h"

namespace cairn::net {

// The shortest round trip that the system has seen of late, so without what waits in queues; 0 where it does
// not say. Any thread.
std::chrono::microseconds LeastRoundTrip(const FileDescriptor& socket);

}  // namespace cairn::net

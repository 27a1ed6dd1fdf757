// The end of a stream's socket: the last message, which says why the stream ends, and the shutdown.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/socket/event_fd.h"

namespace cairn::net {

// Sends the other end the status with which the stream ends. The socket must be between two messages. Waits
// at most 1 s, or until `closing` is set and `wake` raised, for the other end of a TCP socket to read it.
void SendFarewell(const FileDescriptor& socket, const absl::Status& why, const EventFd& wake,
                  const std::atomic<bool>& closing);

// Shuts the socket down. Bytes that the other end reads from our memory afterwards are invalid, because the
// memory may change. `borrowed`: the other end may still read from it.
void ShutDown(const FileDescriptor& socket, bool borrowed);

}  // namespace cairn::net

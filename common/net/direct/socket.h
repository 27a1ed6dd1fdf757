// Unix-domain sockets under abstract names: they lie in no directory, belong to a network namespace, and are
// gone with the process that listens. Whoever can connect to one is on the same host as its listener.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

struct LocalListener {
  std::string name;  // of 128 random bits: nobody else can have had it before
  FileDescriptor socket;
};

// UNAVAILABLE: what failed, and what errno says.
absl::Status SystemFailure(absl::string_view what);
// UNAVAILABLE.
absl::Status OtherEndClosed();
// That, when the other end has shut the socket down, whatever of it is still to be read; else OK.
absl::Status CheckOtherEnd(int socket);

// UNAVAILABLE, saying why, where the system has no such sockets. Nothing below blocks unless it says so.
absl::StatusOr<LocalListener> ListenLocally();
absl::StatusOr<FileDescriptor> ConnectLocally(const std::string& name);
// The next connection that waits; none when there is none, or no descriptor for it.
FileDescriptor AcceptLocally(const FileDescriptor& listener);

// Descriptors beside what is sent in one call; the other end gets some of its own for the same things. At
// most kMostPassed. Outlives the call.
class Passed {
 public:
  static constexpr size_t kMostPassed = 4;
  // For `message`, which is to be sent.
  void Attach(absl::Span<const int> descriptors, msghdr& message);
  // For `message`, which is to be received; and what has come with it. False: some could not be had.
  void MakeRoom(msghdr& message);
  static bool Take(msghdr& message, std::vector<FileDescriptor>& passed);

 private:
  alignas(cmsghdr) char control_[CMSG_SPACE(kMostPassed * sizeof(int))];
};

absl::Status SendPassing(const FileDescriptor& socket, absl::Span<const char> bytes,
                         absl::Span<const int> descriptors);
// Waits until `bytes` are full, with what came beside them; DEADLINE_EXCEEDED after `timeout`.
absl::StatusOr<std::vector<FileDescriptor>> ReceivePassed(const FileDescriptor& socket,
                                                          absl::Span<char> bytes,
                                                          std::chrono::milliseconds timeout);

// Two connected ends.
absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> SocketPair();

}  // namespace cairn::net

// Unix sockets with abstract names. Such a name is in no directory, belongs to a network namespace, and
// disappears with the listening process. A client that can connect to one is on the same host as its
// listener.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"

namespace cairn::net {

struct LocalListener {
  std::string name;  // contains 128 random bits, so it is unique
  FileDescriptor socket;
};

// UNAVAILABLE, with `what`, which names the operation that failed, and the text of errno.
absl::Status SystemFailure(absl::string_view what);
// UNAVAILABLE.
absl::Status OtherEndClosed();
// OtherEndClosed() if the other end has shut the socket down, even if there is still data to read; otherwise
// OK.
absl::Status CheckOtherEnd(int socket);

// UNAVAILABLE, with the reason, if the system does not support abstract Unix sockets. The functions below do
// not block, except where a comment states it.
absl::StatusOr<LocalListener> ListenLocally();
absl::StatusOr<FileDescriptor> ConnectLocally(const std::string& name);
// The next pending connection; invalid if there is none, or no descriptor for it.
FileDescriptor AcceptLocally(const FileDescriptor& listener);

// The descriptors that travel with one message, at most kMaxPassed; the other end receives descriptors of
// its own for the same files. Must outlive the call.
class Passed {
 public:
  static constexpr size_t kMaxPassed = 4;
  // Adds descriptors to `message`, which is about to be sent.
  void Attach(absl::Span<const int> descriptors, msghdr& message);
  // MakeRoom() prepares `message` for receiving; Take() appends the descriptors that came with it to
  // `passed`. Returns false if some were lost.
  void MakeRoom(msghdr& message);
  static bool Take(msghdr& message, std::vector<FileDescriptor>& passed);

 private:
  alignas(cmsghdr) char control_[CMSG_SPACE(kMaxPassed * sizeof(int))];
};

absl::Status SendPassing(const FileDescriptor& socket, absl::Span<const char> bytes,
                         absl::Span<const int> descriptors);
// Waits until `bytes` is full and returns the descriptors that came with it; DEADLINE_EXCEEDED after
// `timeout`.
absl::StatusOr<std::vector<FileDescriptor>> ReceivePassed(const FileDescriptor& socket,
                                                          absl::Span<char> bytes,
                                                          std::chrono::milliseconds timeout);

// Two connected sockets.
absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> SocketPair();

}  // namespace cairn::net

// Reads the messages of a stream from its socket, without blocking: first the prologue with the header, then
// the payload, if it follows on the socket, straight to its destination. Checks all sizes that the other end
// announces.
//
// Owned by the StreamReceiver; used by the thread that receives. An error means that the stream must end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/stream/wire.h"

namespace cairn::net {

// A message without its payload. Valid until the next call of the reader.
struct IncomingMessage {
  DataPrologue prologue{};
  absl::Span<const char> header{};
  absl::Span<const char> runs{};  // BorrowedRuns, not aligned
};

class MessageReader {
 public:
  // `socket` must outlive the reader.
  explicit MessageReader(const FileDescriptor& socket) : socket_(socket), in_(kReadAhead) {}

  // Before the first message: descriptors that come with messages are received from now on.
  void ReceiveDescriptors() { receives_descriptors_ = true; }
  // Returns the front message, also again; nullopt if it has not arrived.
  absl::StatusOr<std::optional<IncomingMessage>> Front();
  // Receives the payload of the front message, all of `to`, which must be the same in all calls for one
  // message. Returns false if not all of it has arrived.
  absl::StatusOr<bool> ReceivePayload(absl::Span<char> to);
  // Removes the front message, whose payload has been received.
  void Pop();

  // There may be more to receive than the socket reports.
  bool unread() const { return unread_; }
  void set_unread() { unread_ = true; }
  // Memory of the reader for a payload, valid until the next call.
  absl::Span<char> Room(size_t bytes);
  // The next descriptor that was passed; invalid if there is none, or if one was lost, because it is then
  // unknown which message each of them belongs to.
  FileDescriptor TakeDescriptor();
  // After the last message: closes the descriptors that were not taken.
  void Close() { passed_.clear(); }

 private:
  // How many bytes are read from the socket before the kind of the message is known. The rest of a payload is
  // read straight to its destination.
  static constexpr size_t kReadAhead = 4096;

  // Returns false if there is nothing more to receive at present.
  absl::StatusOr<bool> ReceiveInto(char* to, size_t count, size_t* got);

  const FileDescriptor& socket_;
  // The bytes [begin_, end_) of in_ have been received; those of the front message are the first front_bytes_
  // of them, without its payload.
  std::vector<char> in_;
  size_t begin_ = 0, end_ = 0;
  size_t front_bytes_ = 0;
  size_t payload_got_ = 0;
  std::vector<char> room_;
  bool unread_ = true;
  bool receives_descriptors_ = false;
  std::vector<FileDescriptor> passed_;
  bool passed_all_ = true;  // no descriptor was lost
};

}  // namespace cairn::net

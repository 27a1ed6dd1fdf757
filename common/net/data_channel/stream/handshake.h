// The handshake of a stream: what both ends agree on before the first message.
//
// Owned by the DataStream. Used by one thread, which waits for the other end for a limited time: the thread
// that connects, or the stream's thread at the server's end.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/peer_memory.h"
#include "common/net/data_channel/shared_memory/shared_ring.h"
#include "common/net/data_channel/stream/data_receiver.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "common/net/data_channel/stream/wire.h"

namespace cairn::net {

// The agreement of the two ends of a stream.
struct StreamTerms {
  // Null: payloads go over the socket.
  std::unique_ptr<SharedRings> rings{};
  // Over this socket each end wakes the other end's waiting writer when its own reader has freed room in the
  // ring.
  FileDescriptor ring_wake{};
  std::unique_ptr<PeerMemory> peer{};  // null: this end cannot borrow
  bool peer_borrows = false;           // the other end can borrow; a server learns that later (kBorrowing)
  bool maps = false;                   // both ends map regions
};

class StreamHandshake {
 public:
  // `shared`: whether the client brings shared memory, or the server accepts it. The socket and the options
  // must outlive the handshake, which must exist until the first message has been received: the other end
  // reads a value in it.
  StreamHandshake(const FileDescriptor& socket, bool shared, const StreamOptions& options);

  // The client's end. UNAVAILABLE or DEADLINE_EXCEEDED if there is no answer within 5 s, or if shared memory
  // is not available.
  absl::StatusOr<StreamTerms> Request();
  // The server's end. Asks `receiver` whether it accepts the client's target. Waits 10 s for the client.
  absl::StatusOr<StreamTerms> Answer(DataReceiver& receiver);

 private:
  // Waits until the answer begins to arrive; returns after the limit too. CANCELLED if the program wants.
  absl::Status AwaitAnswer() const;
  DataHandshake Ours() const;
  std::unique_ptr<PeerMemory> OpenPeer(const DataHandshake& theirs) const;

  const FileDescriptor& socket_;
  const bool shared_;
  const StreamOptions& options_;
  const uint64_t probe_;  // a value for the other end to find in our memory
};

}  // namespace cairn::net

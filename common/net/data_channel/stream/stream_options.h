// The configuration of one end of a stream, and the sizes that its classes share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace cairn::net {

// The purpose of a client's stream.
struct StreamTarget {
  static constexpr int64_t kOwnShard = -1;

  int64_t shard = kOwnShard;  // the server process may have several shards
  // The client is the shard's primary, and sends to the backup. Otherwise it pushes and reads.
  bool replicates = false;

  friend bool operator==(const StreamTarget&, const StreamTarget&) = default;
};

struct StreamOptions {
  uint64_t incarnation = 0;  // the server's; both ends must agree
  // The secret that the server announces over gRPC to the tasks that may open streams (DataEndpoint::key):
  // kDataKeyBytes, or empty for none. A client with another key is refused.
  std::string key{};
  StreamTarget target{};  // client
  // Backpressure: while more messages than this are queued, nothing is received. A peer that does not read
  // its answers cannot send more requests.
  size_t rest_above = std::numeric_limits<size_t>::max();
  // The stream ends if the other end has taken none of the queued messages for this long.
  std::chrono::milliseconds stall_limit = std::chrono::hours(24 * 365);
  // Server: the stream ends if the client has sent nothing for `idle_limit` and waits for no answer, or if
  // its first message does not arrive within `first_limit` of the start.
  std::chrono::milliseconds idle_limit = std::chrono::hours(24 * 365);
  std::chrono::milliseconds first_limit = std::chrono::hours(24 * 365);
  // Client: polled ten times a second while the server has not answered the handshake; true ends the wait with
  // CANCELLED. Null: only the limit of the handshake.
  std::function<bool()> stopped{};
  // Whether payloads may be borrowed and mapped, in both directions, where memory is shared. Both ends must
  // set it.
  bool offers_memory = false;
  // Whether large payloads that this end sends over the socket are pinned.
  bool pins = true;
};

// The size of the ring of each direction: two fragments, so that both ends work at the same time within a
// core's second-level cache. A larger ring costs both ends more time for each byte, because its data goes to
// memory and back.
inline constexpr size_t kRingBytes = size_t{512} << 10;
// The best size of a fragment of a large payload that is copied.
inline constexpr int64_t kFragmentFloats = int64_t{64} << 10;
// Payloads up to this size go over the socket with their header: announcing an address would cost as much.
// Messages up to this size, and those whose payload is borrowed or mapped, are sent by the calling thread,
// which saves waking another one.
inline constexpr size_t kSmallBytes = size_t{16} << 10;

}  // namespace cairn::net

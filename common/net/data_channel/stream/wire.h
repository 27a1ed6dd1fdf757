// The structs that a DataStream sends on its socket, in addition to headers and payloads. Numbers are
// little-endian, as in all payloads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/net/data_channel/shared_memory/peer_memory.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

static_assert(std::endian::native == std::endian::little, "these structs are what is sent");

template <typename T>
absl::Span<const char> BytesOf(const T& said) {
  return {reinterpret_cast<const char*>(&said), sizeof said};
}

// The size of DataHandshake::key.
inline constexpr size_t kDataKeyBytes = 16;

// How many regions one end maps during the life of a stream. Payloads in other regions are borrowed.
inline constexpr size_t kMaxRegions = 8;
// The smallest average size of a borrowed or mapped run, in bytes, and the most runs of one payload.
inline constexpr size_t kMinBorrowedRun = 4096;
inline constexpr size_t kMaxBorrowedRuns = kMaxPayloadBytes / kMinBorrowedRun;

struct DataHandshake {
  static constexpr uint64_t kMagic = 0x376e726961632d6c;

  uint64_t magic = kMagic;
  uint64_t incarnation = 0;               // the server's; both ends must agree
  std::array<char, kDataKeyBytes> key{};  // client: the key that the server announced over gRPC
  int64_t shard = -1;                     // client: StreamTarget::shard
  uint64_t replicates = 0;                // client: StreamTarget::replicates
  uint64_t shared = 0;                    // client: it passes shared memory; the server repeats the value
  PeerMemory::Probe probe{};
  uint64_t borrows = 0;  // server: it can read the client's memory
  uint64_t maps = 0;     // this end maps regions
};

// Precedes each message. A header of header_bytes bytes follows, then `runs` BorrowedRuns or a payload of
// payload_bytes bytes.
struct DataPrologue {
  enum Kind : uint32_t {
    kInline = 0,     // the payload follows
    kInRing = 1,     // the payload is at `position` of the ring
    kFarewell = 2,   // the stream ends: the header is a message, payload_bytes a status code
    kBorrowed = 3,   // the payload is in the sender's memory: mapped, in region `position`, or borrowed (0)
    kReleased = 4,   // `position` borrowed, mapped or pinned payloads have been read
    kBorrowing = 5,  // client: it can read the server's memory
    kPinned = 6,     // as kInline, but pinned: the sender waits for kReleased
    kRegion = 7,     // a region to map: the header is a DataRegion, whose descriptor is passed with it
    kMapped = 8,     // region `position` has been mapped
    kAllowed = 9,    // server: credit, the bytes of payload that may have been sent in all (credit_limit.h)
  };

  uint32_t kind = kInline;
  uint32_t header_bytes = 0;
  uint32_t payload_bytes = 0;
  uint32_t runs = 0;
  uint64_t position = 0;
};

}  // namespace cairn::net

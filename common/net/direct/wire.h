// What a DirectStream says on its socket beside headers and payloads. Numbers are little-endian, as those of
// payloads are everywhere.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/net/direct/peer_memory.h"

namespace cairn::net {

static_assert(std::endian::native == std::endian::little, "these structs are what is sent");

template <typename T>
absl::Span<const char> BytesOf(const T& said) {
  return {reinterpret_cast<const char*>(&said), sizeof said};
}

// The size of DirectGreeting::key.
inline constexpr size_t kDirectKeyBytes = 16;

struct DirectGreeting {
  static constexpr uint64_t kMagic = 0x366e726961632d6c;

  uint64_t magic = kMagic;
  uint64_t incarnation = 0;                 // of the server: both ends must mean the same
  std::array<char, kDirectKeyBytes> key{};  // the client's: the server told it over gRPC
  int64_t part = -1;                        // the client's: DirectStream::Options::part
  uint64_t shared = 0;  // the client's: it brings shared memory; the server's answer says the same
  PeerMemory::Probe probe{};
  uint64_t borrows = 0;  // the server's: it takes what is lent
  uint64_t maps = 0;     // it maps regions
};

// Behind a kRegion's prologue, as its header. The region's descriptor comes with it.
struct DirectRegion {
  uint64_t number = 0;
  uint64_t address = 0;  // in the memory of who tells of it
  uint64_t bytes = 0;
};

// Before each message. Behind it come header_bytes of header, then `runs` LentRuns or payload_bytes of
// payload.
struct DirectPrologue {
  enum Kind : uint32_t {
    kInline = 0,    // the payload follows
    kInRing = 1,    // it is at `position` of the ring
    kFarewell = 2,  // the stream ends: the header is a text, payload_bytes a status code
    kLent = 3,      // the payload is in the sender's memory: in region `position`, if it is not 0
    kBorrowed = 4,  // `position` messages that were lent or held have been read
    kBorrows = 5,   // the client's: it takes what is lent
    kHeld = 6,      // as kInline; the sender wants to be told when it has been read
    kRegion = 7,    // memory to map
    kMapped = 8,    // region `position` has been mapped
    kAllowed = 9,   // the server's: `position` bytes of payloads may have been sent in all (allowance.h)
  };

  uint32_t kind = kInline;
  uint32_t header_bytes = 0;
  uint32_t payload_bytes = 0;
  uint32_t runs = 0;
  uint64_t position = 0;
};

}  // namespace cairn::net

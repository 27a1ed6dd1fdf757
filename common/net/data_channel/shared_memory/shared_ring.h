// Memory that two processes share, with two rings of bytes: one for each direction.
//
// One end creates the memory and passes its descriptor to the other. Whatever the other end writes is
// considered hostile: a position is copied before it is checked, and the contents of a ring are only bytes. A
// peer that violates the protocol (kBroken) is distinguished from one that is slow (kFull).
//
// A writer reserves a run, fills it, and announces its position and length over the socket, in order. The
// reader frees runs in that order. One thread at each end of a ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/shared_memory.h"

namespace cairn::net {

class SharedRings {
 public:
  // `bytes` is the size of each ring, a power of two.
  static absl::StatusOr<std::unique_ptr<SharedRings>> Create(size_t bytes);
  // Opens memory that another process has passed. INVALID_ARGUMENT if it is not sealed, or if Create() never
  // allocates memory of this size for rings of at most kMaxBytes.
  static absl::StatusOr<std::unique_ptr<SharedRings>> Open(FileDescriptor memory);
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  int descriptor() const { return memory_.descriptor().get(); }
  size_t bytes() const { return bytes_; }

  // The header of a ring, in shared memory.
  struct Header {
    std::atomic<uint64_t> consumed;      // bytes that the reader has freed since the beginning
    std::atomic<uint32_t> writer_waits;  // not 0 if the writer wants to be notified when `consumed` rises
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

 private:
  friend class RingWriter;
  friend class RingReader;
  SharedRings(SharedMemory memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  Header& header(int ring) const;
  char* data(int ring) const;

  const SharedMemory memory_;
  const size_t bytes_;
};

// Positions only grow; a position modulo the size of the ring is the offset in memory.
class RingWriter {
 public:
  RingWriter(const SharedRings& rings, int ring)
      : header_(rings.header(ring)), data_(rings.data(ring)), bytes_(rings.bytes()) {}

  enum class Outcome { kReserved, kFull, kBroken };
  struct Reserved {
    Outcome outcome;
    uint64_t position = 0;
    char* data = nullptr;
  };
  // Reserves a contiguous run of `count` bytes, at most half the ring. kFull: there is no room, and the
  // reader has been asked to notify the writer when it frees some.
  Reserved Reserve(size_t count);

 private:
  // The number of free bytes from produced_ on; nullopt if the reader's position is impossible.
  std::optional<uint64_t> Free();

  SharedRings::Header& header_;
  char* const data_;
  const uint64_t bytes_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;  // the value of Header::consumed that was read last
};

class RingReader {
 public:
  RingReader(const SharedRings& rings, int ring)
      : header_(rings.header(ring)), data_(rings.data(ring)), bytes_(rings.bytes()) {}

  // The run that the writer has announced, valid until Release(); nullopt if there can be no run of this
  // position and length.
  std::optional<absl::Span<const char>> Take(uint64_t position, size_t count);
  // Frees the run. Returns true if the writer must be notified.
  bool Release();

 private:
  SharedRings::Header& header_;
  const char* const data_;
  const uint64_t bytes_;
  uint64_t consumed_ = 0;
  uint64_t taken_end_ = 0;
};

}  // namespace cairn::net

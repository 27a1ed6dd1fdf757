// Memory that two processes share, as two rings of bytes: one for each direction.
//
// One end makes it and passes its descriptor to the other. What the other end writes is taken for hostile: a
// position is copied before it is checked, and what a ring holds is bytes, wherever they came from. Who
// breaks the rules is told apart from who is slow: kBroken.
//
// A writer reserves a run, fills it, and tells its position and length by other means, in order; the reader
// gives runs back in that order. One thread at each end of a ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/direct/shared_memory.h"

namespace cairn::net {

class SharedRings {
 public:
  // `bytes` of each ring, a power of two.
  static absl::StatusOr<std::unique_ptr<SharedRings>> Create(size_t bytes);
  // What came from another process: INVALID_ARGUMENT when it is not sealed or has another size than Create()
  // gives for some `bytes` up to kMostBytes.
  static absl::StatusOr<std::unique_ptr<SharedRings>> Open(FileDescriptor memory);
  static constexpr size_t kMostBytes = size_t{1} << 20;
  int descriptor() const { return memory_.descriptor().get(); }
  size_t bytes() const { return bytes_; }

  // In shared memory.
  struct Header {
    std::atomic<uint64_t> consumed;      // the reader's: bytes since the beginning
    std::atomic<uint32_t> writer_waits;  // the writer's: not 0 when it wants to be told of `consumed`
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

// Positions rise for ever; the place in memory is what is left of one by the ring's size.
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
  // A run of `count` bytes, in one piece, at most half the ring. kFull: the reader has been asked to say when
  // it gives something back.
  Reserved Reserve(size_t count);

 private:
  // Bytes from produced_ on that are free; none when the reader told nonsense.
  std::optional<uint64_t> Free();

  SharedRings::Header& header_;
  char* const data_;
  const uint64_t bytes_;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;  // as last seen
};

class RingReader {
 public:
  RingReader(const SharedRings& rings, int ring)
      : header_(rings.header(ring)), data_(rings.data(ring)), bytes_(rings.bytes()) {}

  // The run that the writer told of, until GiveBack(); none when there is no such run.
  std::optional<absl::Span<const char>> Take(uint64_t position, size_t count);
  // True: the writer waits to be told.
  bool GiveBack();

 private:
  SharedRings::Header& header_;
  const char* const data_;
  const uint64_t bytes_;
  uint64_t consumed_ = 0;
  uint64_t taken_end_ = 0;
};

}  // namespace cairn::net

// Collects the chunks of one push or write until they are complete.
//
// Owned by the session whose stream brings them; one thread. Nothing of it is visible to others before the
// shard takes it, so a stream that breaks half-way leaves no trace.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/net/frame.h"
#include "ps/buffer_pool.h"

namespace cairn::ps {

class Accumulator {
 public:
  // `pool`'s buffers have the size of the server's values.
  explicit Accumulator(BufferPool& pool) : pool_(pool) {}

  // INVALID_ARGUMENT, without effect, when the payload is no whole number of elements, lies outside the
  // values, or repeats elements that have already come; RESOURCE_EXHAUSTED when the pool has no buffer.
  absl::Status Add(const v1::Chunk& chunk, net::Payload payload);

  // Where the elements of such a chunk, as float32, are put if the next Add() is of it: its payload may lie
  // there already. Empty where Add() would refuse it.
  absl::Span<float> PlaceFor(const v1::Chunk& chunk, int64_t count);

  // What the last Add() brought; and where all that has come is.
  const std::pair<int64_t, int64_t>& last() const { return last_; }
  std::shared_ptr<const AlignedBuffer> buffer() const { return buffer_; }

  // Elements received so far.
  int64_t received() const { return received_; }
  bool complete() const { return received_ == pool_.buffer_size(); }

  // Received runs by offset: offset -> end.
  const std::map<int64_t, int64_t>& runs() const { return runs_; }
  // The elements; only those in runs() mean something. Null when nothing has come.
  std::shared_ptr<const AlignedBuffer> Take() { return std::move(buffer_); }

 private:
  // The runs before and after [offset, offset + count), of which nothing has come; else an error.
  struct Neighbours {
    std::map<int64_t, int64_t>::iterator before, after;
  };
  absl::StatusOr<Neighbours> FindRoom(int64_t offset, int64_t count);

  BufferPool& pool_;
  std::shared_ptr<AlignedBuffer> buffer_;
  std::map<int64_t, int64_t> runs_;  // disjoint, not touching
  int64_t received_ = 0;
  std::pair<int64_t, int64_t> last_{};  // elements [first, second)
};

}  // namespace cairn::ps

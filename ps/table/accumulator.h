// Collects the chunks of one push or write until they are complete.
//
// Owned by the session whose stream brings the chunks; one thread. Its contents are invisible to others until
// the shard takes them, so a stream that breaks half-way leaves no trace.
//
// Elements borrowed from a SharedBuffer are used in the client's memory, without a copy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/received_elements.h"
#include "optim/store/buffer_pool.h"
#include "ps/table/gradient_view.h"

namespace cairn::ps {

class Accumulator {
 public:
  // How Add() treats borrowed elements. kCopied: it copies them. kKept: it uses them in the client's memory,
  // and the client must be notified when they are no longer needed.
  enum class Borrowed { kCopied, kKept };
  // Buffers of `pool` have the size of the server's values.
  explicit Accumulator(optim::BufferPool& pool, Borrowed borrowed = Borrowed::kCopied)
      : pool_(pool), keeps_borrowed_(borrowed == Borrowed::kKept) {}

  // INVALID_ARGUMENT, without effect, if the payload is not a whole number of elements, lies outside the
  // values, or repeats received elements; RESOURCE_EXHAUSTED if the pool has no buffer.
  absl::Status Add(const v1::Chunk& chunk, net::Payload payload);

  // Where the next Add() will store the elements of this chunk, as float32. The caller may receive the
  // payload there. Empty if Add() would refuse the chunk.
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count);

  // last(): the range [first, second) of the elements that the last Add() added. elements(): the view of all
  // elements; elements that have not been received are unspecified.
  const std::pair<int64_t, int64_t>& last() const { return last_; }
  const GradientView& elements();

  // Elements received so far.
  int64_t received() const { return received_; }
  // Elements of a complete push.
  int64_t size() const { return pool_.buffer_size(); }
  bool complete() const { return received_ == size(); }

  // The received runs: begin -> end.
  const std::map<int64_t, int64_t>& runs() const { return runs_; }
  // Returns the elements and releases them; to be called once, at the end. Only the elements in runs() are
  // valid. Returns a view that is none() if nothing has been received.
  GradientView Take();

 private:
  // The runs before and after [offset, offset + count), or an error if any of these elements has
  // been received.
  struct Neighbours {
    std::map<int64_t, int64_t>::iterator before, after;
  };
  absl::StatusOr<Neighbours> FindRoom(int64_t offset, int64_t count);
  // Keeps the payload's elements in place and returns true, if that is possible. `next` as in Reference().
  bool Keep(const v1::Chunk& chunk, net::Payload payload, int64_t next);
  // Copies elements into buffer_.
  absl::Status Copy(const net::ReceivedElements& elements, int64_t offset, int64_t next);
  // Records that the elements from `begin` up to `next` are at `elements`. `next`: the first later element
  // that has been received, or the end. The record of `next` does not change.
  void Reference(int64_t begin, const float* elements, int64_t next);

  optim::BufferPool& pool_;
  const bool keeps_borrowed_;
  std::shared_ptr<AlignedBuffer> buffer_;            // may be allocated and unused
  std::vector<optim::ElementRun> references_;        // as in GradientView; empty while no memory is borrowed
  std::vector<std::shared_ptr<const void>> owners_;  // the owners of the borrowed memory
  GradientView elements_;            // cached view; none() if elements have arrived since it was made
  std::map<int64_t, int64_t> runs_;  // disjoint, not touching
  int64_t received_ = 0;
  std::pair<int64_t, int64_t> last_{};  // the range of the elements added last
};

}  // namespace cairn::ps

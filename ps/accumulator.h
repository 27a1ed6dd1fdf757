// Collects the chunks of one push or write until they are complete.
//
// Owned by the session whose stream brings them; one thread. Nothing of it is visible to others before the
// shard takes it, so a stream that breaks half-way leaves no trace.
//
// What is lent from a SharedBuffer is not copied: it is used where the client has it.
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
#include "common/core/aligned_buffer.h"
#include "common/net/frame.h"
#include "common/net/received_elements.h"
#include "ps/buffer_pool.h"
#include "ps/held_elements.h"

namespace cairn::ps {

class Accumulator {
 public:
  // Whether what is lent may be left where it is: if the client hears when it is not needed any more.
  enum class Lent { kCopied, kKept };
  // `pool`'s buffers have the size of the server's values.
  explicit Accumulator(BufferPool& pool, Lent lent = Lent::kCopied)
      : pool_(pool), keeps_lent_(lent == Lent::kKept) {}

  // INVALID_ARGUMENT, without effect, when the payload is no whole number of elements, lies outside the
  // values, or repeats elements that have already come; RESOURCE_EXHAUSTED when the pool has no buffer.
  absl::Status Add(const v1::Chunk& chunk, net::Payload payload);

  // Where the elements of such a chunk, as float32, are put if the next Add() is of it: its payload may lie
  // there already. Empty where Add() would refuse it.
  absl::Span<float> PlaceFor(const v1::Chunk& chunk, int64_t count);

  // What the last Add() brought; and where all that has come is: of elements that have not, it says nothing.
  const std::pair<int64_t, int64_t>& last() const { return last_; }
  const HeldElements& elements();

  // Elements received so far.
  int64_t received() const { return received_; }
  bool complete() const { return received_ == pool_.buffer_size(); }

  // Received runs by offset: offset -> end.
  const std::map<int64_t, int64_t>& runs() const { return runs_; }
  // The elements; only those in runs() mean something. None when nothing has come. Once, at the end: nothing
  // here holds them any more.
  HeldElements Take();

 private:
  // The runs before and after [offset, offset + count), of which nothing has come; else an error.
  struct Neighbours {
    std::map<int64_t, int64_t>::iterator before, after;
  };
  absl::StatusOr<Neighbours> FindRoom(int64_t offset, int64_t count);
  // True: the payload's elements stay where they are. `next` as of Place().
  bool Keep(const v1::Chunk& chunk, net::Payload payload, int64_t next);
  // Copies elements into buffer_.
  absl::Status Copy(const net::ReceivedElements& elements, int64_t offset, int64_t next);
  // What comes from element `begin` on is at `elements`; from `next` on, the first behind it that has come,
  // or the end, it is where it was.
  void Place(int64_t begin, const float* elements, int64_t next);

  BufferPool& pool_;
  const bool keeps_lent_;
  std::shared_ptr<AlignedBuffer> buffer_;            // may be there unused
  std::vector<ElementRun> places_;                   // as HeldElements; none while nothing is kept
  std::vector<std::shared_ptr<const void>> owners_;  // of what is kept
  HeldElements elements_;                            // none when what they are made of has changed since
  std::map<int64_t, int64_t> runs_;                  // disjoint, not touching
  int64_t received_ = 0;
  std::pair<int64_t, int64_t> last_{};  // elements [first, second)
};

}  // namespace cairn::ps

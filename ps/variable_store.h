// The values of one server's slices, version by version, and their optimizer slots.
//
// An update writes a new buffer and publishes it whole; readers hold the version they took for as long as
// they like and never wait for, or see a part of, an update. Two versions exist as a rule, one more for each
// that a reader still holds: so readers are let in while there is room for the next version.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/net/placement.h"
#include "ps/buffer_pool.h"
#include "ps/encoded_values.h"
#include "ps/memory_budget.h"
#include "ps/optim/apply.h"
#include "ps/optim/optimizer.h"
#include "ps/optim/update.h"
#include "ps/squares.h"

namespace cairn::ps {

// All values of a server at one version. Immutable.
struct Values {
  int64_t version = 0;
  std::shared_ptr<const AlignedBuffer> data;
  // Drawn for them alone; a Write() leaves the version as it is.
  uint64_t edition = 0;
};

class VariableStore {
 public:
  // Values and slots start at 0 and the optimizer's initial slot values. `optimizer` is null where nothing is
  // trained, and outlives the store otherwise. `memory_limit`: bytes, of all that is allocated here. `crew`:
  // who helps with updates; outlives the store.
  VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer, int64_t initial_version = 0,
                int64_t memory_limit = std::numeric_limits<int64_t>::max(), Crew* crew = nullptr);

  const std::vector<net::Slice>& slices() const { return slices_; }
  int64_t size() const { return pool_.buffer_size(); }     // elements
  int64_t memory_used() const { return budget_->used(); }  // bytes. Any thread.
  // Buffers of size() elements for what arrives.
  BufferPool& pool() { return pool_; }
  // Likewise of whole states: the values, followed by all of each slot, in the optimizer's order.
  BufferPool& state_pool() { return state_pool_; }
  // What of its versions travels in 16 bits. Never null.
  const std::shared_ptr<EncodedValues>& encoded() const { return encoded_; }

  // Any thread.
  Values current() const ABSL_LOCKS_EXCLUDED(mutex_);
  // RESOURCE_EXHAUSTED, with the numbers, when no version could be written beside the current one: then
  // nobody else may hold that. Any thread.
  absl::Status CheckRoomForReader() const;

  // What an update is made of. One thread at a time measures, applies and writes.
  struct Mean {
    absl::Span<const ContributedGradient> gradients;  // each of size() elements, in summation order
    bool last = false;                                // the job's last update
    float rate_divisor = 1;                           // of the learning rate
    VariableSquares known{};  // over all servers, of the Measure() before; empty at first
  };
  // One of the optimizer's norms, in their order, before ApplyMean() of the same gradients: what this
  // server's slices add to it. A slice that is not its whole variable must have whole bands. Publishes
  // nothing. INVALID_ARGUMENT as ApplyMean().
  absl::StatusOr<std::vector<SliceSquares>> Measure(Norms norms, const Mean& mean);
  // The mean, the optimizer or, where a slice has one, its moving average, version + 1. INVALID_ARGUMENT
  // naming the variable when the mean is not finite: nothing is published, but slots may be spoilt, so the
  // caller must end the job. A Write() after the measuring of a layer's norms is updated by the norms from
  // before it.
  absl::Status ApplyMean(const Mean& mean);

  // The next update piece by piece, for an optimizer without norms: made beside the current version until it
  // is published or dropped. In between nothing else is applied or written.
  void BeginAhead();
  // Elements [begin, end) of it; all of them are in the buffer that this returns once they have been made.
  // Null when the mean is not finite. Any number of threads, each at elements of its own.
  std::shared_ptr<const AlignedBuffer> ApplyAhead(const Mean& mean, int64_t begin, int64_t end);
  // All of it has been made: version + 1.
  void PublishAhead();
  void DropAhead() { ahead_.reset(); }

  // Of all updates from now on, in place of the optimizer's. One thread at a time, with ApplyMean() too.
  void SetLearningRate(float rate) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the next update; 0 where nothing is trained. Any thread.
  float learning_rate() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last update has been made, though ApplyMean() was not told so: what it does beside, that the averages
  // which an optimizer keeps of the values take their place, is done now. As Write().
  void EndHere();

  // Publishes the current version again with the elements [begin, end) of `data` in it.
  struct Run {
    int64_t begin, end;
  };
  void Write(const AlignedBuffer& data, absl::Span<const Run> runs);
  // Publishes the current version again with a whole state, of state_pool()'s size, in its place. As Write().
  void WriteState(const AlignedBuffer& state);
  // All slots now, one after another; null where there are none. RESOURCE_EXHAUSTED when there is no room for
  // them. As Write().
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> CopySlots();
  // Likewise, beyond the budget if need be: for the copy on another server.
  std::shared_ptr<const AlignedBuffer> TakeSlotsCopy();
  // What another store had at `version`: `state` is of state_pool(); null where there are no values. As
  // Write().
  void Restore(int64_t version, const AlignedBuffer* state);
  // What SetLearningRate() said last. Any thread.
  std::optional<float> amended_learning_rate() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Publish(Values next) ABSL_LOCKS_EXCLUDED(mutex_);
  void FillSlotsCopy(AlignedBuffer& copy) const;
  // Calls body(update of `old` into `next`, and of slots_ into these).
  template <typename Body>
  auto WithUpdate(const Values& old, const Mean& mean, std::vector<AlignedBuffer>& slots, AlignedBuffer& next,
                  Body body) const;
  // next_, which it acquires first if need be.
  AlignedBuffer& Next();
  absl::Status NotFinite(int64_t offset, int64_t version) const;

  const std::vector<net::Slice> slices_;
  const Optimizer* const optimizer_;
  Crew* const crew_;
  const std::vector<UpdatePart> parts_;
  const std::shared_ptr<MemoryBudget> budget_;  // the pools' too, and of buffers that outlive us
  BufferPool pool_;
  BufferPool state_pool_;
  BufferPool slots_pool_;  // of copies of all slots
  const std::shared_ptr<EncodedValues> encoded_;
  // The updating thread's.
  std::vector<AlignedBuffer> slots_;     // [slot][size()]
  std::shared_ptr<AlignedBuffer> next_;  // new values of an update that is being measured, else null
  // Of an update that is made piece by piece; null and unspecified where there is none.
  std::shared_ptr<AlignedBuffer> ahead_;
  std::vector<AlignedBuffer> ahead_slots_;

  mutable Mutex mutex_;
  Values current_ ABSL_GUARDED_BY(mutex_);
  std::optional<float> learning_rate_ ABSL_GUARDED_BY(mutex_);  // none: the optimizer's
};

}  // namespace cairn::ps

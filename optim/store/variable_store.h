// The values of one server's slices, version by version, and their optimizer slots.
//
// An update writes a new buffer and publishes it as a whole. A reader may keep its version for any length of
// time; it never waits for an update or sees part of one. Usually two versions exist, and one more for each
// older version that a reader still uses. Therefore readers are admitted only while there is room for the
// next version.
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
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "optim/apply.h"
#include "optim/optimizer.h"
#include "optim/store/buffer_pool.h"
#include "optim/store/encoded_values.h"
#include "optim/store/group_settings.h"
#include "optim/store/memory_budget.h"
#include "optim/store/squares.h"
#include "optim/store/update_plan.h"
#include "optim/update.h"

namespace cairn::optim {

// All values of a server at one version. Immutable.
struct Values {
  int64_t version = 0;
  std::shared_ptr<const AlignedBuffer> data;
  // Unique to these values: after a Write() the version is the same and the edition differs.
  uint64_t edition = 0;
};

class VariableStore {
 public:
  // Values start at 0, and slots at the optimizer's initial slot values. `optimizer` outlives the store;
  // null: nothing is trained. `memory_limit`: limit on all allocations of the store, in bytes. `thread_pool`:
  // the thread pool for updates; outlives the store.
  VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer, int64_t initial_version = 0,
                int64_t memory_limit = std::numeric_limits<int64_t>::max(),
                ThreadPool* thread_pool = nullptr);

  const std::vector<net::Slice>& slices() const { return slices_; }
  int64_t size() const { return pool_.buffer_size(); }     // elements
  int64_t memory_used() const { return budget_->used(); }  // bytes. Any thread.
  // Counts what the store allocates. Others may share it.
  const std::shared_ptr<MemoryBudget>& budget() const { return budget_; }
  // Buffers of size() elements, for received data.
  BufferPool& pool() { return pool_; }
  // Buffers for complete states: the values, followed by each slot, in the optimizer's order.
  BufferPool& state_pool() { return state_pool_; }
  int64_t state_size() const { return state_pool_.buffer_size(); }  // elements of a complete state
  // The values in a 16-bit encoding, for sending. Never null.
  const std::shared_ptr<EncodedValues>& encoded() const { return encoded_; }

  // Any thread.
  Values current() const ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called before a reader is given the current version. RESOURCE_EXHAUSTED, with the numbers, if there
  // is no room for the next version in addition to the current one. Any thread.
  absl::Status CheckRoomForReader() const;

  // The input of an update. Only one thread at a time measures, applies and writes.
  struct Mean {
    absl::Span<const ContributedGradient> gradients;  // each of size() elements, in summation order
    bool last = false;                                // the job's last update
    float rate_divisor = 1;                           // divides the learning rate
    VariableSquares known{};                          // totals of the previous Measure(); initially empty
  };
  // Computes this server's contribution to one of the optimizer's norms. Called for each norm in order,
  // before ApplyMean() of the same gradients. A slice that is not a whole variable must consist of whole
  // bands. Publishes nothing. INVALID_ARGUMENT as ApplyMean().
  absl::StatusOr<std::vector<SliceSquares>> Measure(Norms norms, const Mean& mean);
  // Computes the mean, applies the optimizer to it, and publishes version + 1. In a slice with a moving
  // average, the average is updated instead. INVALID_ARGUMENT, naming the variable, if the mean is not
  // finite: nothing is published then, but slots may be partly updated, so the caller must end the job. If
  // Write() is called between Measure() and ApplyMean(), the new values are updated with the norms of the old
  // values.
  absl::Status ApplyMean(const Mean& mean);

  // Begins a speculative update, for an optimizer and constraints without norms. The update is computed into other
  // buffers than the current version. Until it is published or dropped, no other update may be applied, and
  // nothing may be written.
  void BeginSpeculative();
  // The speculative update is made with these settings of the groups, not with groups(). To be called before any
  // of its elements are computed.
  // INVALID_ARGUMENT as SetGroups().
  absl::Status SetSpeculativeGroups(const std::vector<GroupSettings>& groups);
  // Computes elements [begin, end) of the speculative update. Returns its buffer, which is complete when all
  // elements have been computed. Null if the mean is not finite. Any number of threads, on disjoint elements.
  std::shared_ptr<const AlignedBuffer> ApplySpeculatively(const Mean& mean, int64_t begin, int64_t end);
  // Publishes version + 1; to be called when all elements have been computed.
  void PublishSpeculative();
  void DropSpeculative() { speculative_.reset(); }

  // Replaces the optimizer's learning rate for all later updates. To be called by the thread that calls
  // ApplyMean().
  void SetLearningRate(float rate) ABSL_LOCKS_EXCLUDED(mutex_);
  // Assigns each slice to a group, -1: none. To be called once, before the first update.
  void AssignGroups(std::vector<int> group_of_slice);
  // Sets what all later updates do with each group, [group]; a group beyond the end has no settings. Threading
  // as SetLearningRate(). INVALID_ARGUMENT, and no change, if the optimizer cannot have them: CheckGroupSettings().
  absl::Status SetGroups(std::vector<GroupSettings> groups);
  // As set by SetGroups(). For the thread that calls ApplyMean().
  const std::vector<GroupSettings>& groups() const { return groups_; }
  // From now on, an update whose gradients have no examples leaves values, slots and counts as they are.
  void SkipEmptyUpdates() { skips_empty_updates_ = true; }
  // The updates so far that left variables as they were. Threading as SetLearningRate(). SetSkipped() limits each count
  // to the current version.
  const SkippedUpdates& skipped() const { return skipped_; }
  void SetSkipped(SkippedUpdates skipped);
  // The learning rate of the next update; 0 if nothing is trained. Any thread.
  float learning_rate() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the current version the job's last, if its update was applied without Mean::last. With use_ema,
  // replaces the values by their averages, as that update would have done. Threading as Write().
  void EndHere();

  // Publishes the current version again, with the elements [begin, end) of each run taken from `data`.
  struct Run {
    int64_t begin, end;
  };
  void Write(const AlignedBuffer& data, absl::Span<const Run> runs);
  // Publishes the current version again, with a complete state from state_pool(). Threading as Write().
  void WriteState(const AlignedBuffer& state);
  // A copy of all slots, one after another; null if there are none. RESOURCE_EXHAUSTED if there is no room
  // for it. Threading as Write().
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> CopySlots();
  // As CopySlots(), but beyond the budget if necessary: for a backup, or for another worker of a ring.
  std::shared_ptr<const AlignedBuffer> CopySlotsBeyondBudget();
  // Restores the state of another store at `version`. `state` is from state_pool(); null if there are no
  // values. Threading as Write().
  void Restore(int64_t version, const AlignedBuffer* state);
  // The rate set by SetLearningRate(), if any. Any thread.
  std::optional<float> changed_learning_rate() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Publish(Values next) ABSL_LOCKS_EXCLUDED(mutex_);
  void FillSlotsCopy(AlignedBuffer& copy) const;
  // Where an update is made: its new values and slots, and the rules of its slices.
  struct Target {
    AlignedBuffer& values;
    std::vector<AlignedBuffer>& slots;
    const UpdatePlan& plan;
  };
  // The update of the current version.
  Target Current() { return {Next(), slots_, plan_}; }
  // Calls body(update) for the update of `old` and slots_ into `target`.
  template <typename Body>
  auto WithUpdate(const Values& old, const Mean& mean, const Target& target, Body body) const;
  absl::StatusOr<UpdatePlan> PlanWith(const std::vector<GroupSettings>& groups) const;
  // Whether the update with this mean leaves everything as it is.
  bool Skips(const Mean& mean) const;
  // The sums of such an update, [slice][band]: all are 0.
  MeasuredSlices NothingMeasured() const;
  void CountUntouched();
  // next_, acquired first if necessary.
  AlignedBuffer& Next();
  absl::Status NotFinite(int64_t offset, int64_t version) const;

  const std::vector<net::Slice> slices_;
  const Optimizer* const optimizer_;
  ThreadPool* const thread_pool_;
  std::vector<int> group_of_slice_;  // [slice]; empty: there are no groups
  // Written between updates only.
  std::vector<GroupSettings> groups_;
  SkippedUpdates skipped_;
  UpdatePlan plan_;
  bool skips_empty_updates_ = false;
  // Shared with the pools, and with buffers that outlive the store.
  const std::shared_ptr<MemoryBudget> budget_;
  BufferPool pool_;
  BufferPool state_pool_;
  BufferPool slots_pool_;  // for copies of all slots
  const std::shared_ptr<EncodedValues> encoded_;
  // Used by the updating thread only.
  std::vector<AlignedBuffer> slots_;     // [slot][size()]
  std::shared_ptr<AlignedBuffer> next_;  // new values of an update that is being measured, or null
  // New values and slots of a speculative update; null and unspecified if there is none.
  std::shared_ptr<AlignedBuffer> speculative_;
  std::vector<AlignedBuffer> speculative_slots_;
  UpdatePlan speculative_plan_;

  mutable Mutex mutex_;
  Values current_ ABSL_GUARDED_BY(mutex_);
  std::optional<float> learning_rate_ ABSL_GUARDED_BY(mutex_);  // empty: the optimizer's
};

}  // namespace cairn::optim

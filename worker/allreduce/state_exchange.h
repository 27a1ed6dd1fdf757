// The states that the workers of a ring epoch send each other, the agreement that follows from them, and the
// values that the source sends if another worker lacks them.
//
// Knows no transport. Owned by a Member and guarded by its lock. The ring that it makes has its own lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "worker/allreduce/agreement.h"
#include "worker/allreduce/ring.h"
#include "worker/peer/chunks.h"

namespace cairn::allreduce {

class StateExchange {
 public:
  struct Options {
    int worker = 0;                  // position among the workers
    std::vector<std::string> names;  // [worker] "worker/1 at host:2222"
    int64_t final_version = 0;       // of the job
    int64_t state_size = 0;          // elements of the values and all slots; 0: the source says
    ChunkPlan plan;                  // of a gradient
    // [variable + 1] The offset of each variable in the gradient, and the end.
    std::vector<int64_t> variable_begins;
    // Sends a frame of a ring to the right, if its ring epoch has not ended. See SendToRight.
    std::function<void(int64_t ring_epoch, const v1::RingHeader&, net::FloatSpans payload,
                       const std::shared_ptr<const void>& owner)>
        send;
  };
  explicit StateExchange(Options options);

  // Forgets everything, for a new ring epoch. Returns the previous one's ring; null: it was not formed.
  std::shared_ptr<Ring> Reset();

  // INVALID_ARGUMENT for a state that a correct worker would not pass on to this one.
  absl::Status Check(const v1::RingState& state) const;
  bool Has(int worker) const { return states_[static_cast<size_t>(worker)].has_value(); }
  // Adds a worker's state, or replaces it. The last missing state makes the agreement, or the error of
  // Agree().
  absl::Status Add(int64_t ring_epoch, const v1::RingState& state);
  // The names of the workers whose states are missing: "worker/1 at host:2222, worker/2 at host:2222".
  std::string Missing() const;

  // Nullopt until all states are here.
  const std::optional<Agreement>& agreement() const { return agreement_; }
  // Null without an agreement.
  std::shared_ptr<Ring> ring() const { return agreement_.has_value() ? agreement_->ring : nullptr; }
  // " in step 7", for messages.
  std::string InStep() const;

  // If the agreement passes values to this worker: the values of the source, of which CountValues() elements
  // are here. Otherwise null, and until the first chunk if the source says how many there are.
  const std::shared_ptr<AlignedBuffer>& values() const { return values_; }
  // INVALID_ARGUMENT if these bytes are not the next ones.
  absl::Status CheckValues(const v1::StateChunk& chunk, int64_t bytes);
  bool HasAllValues() const { return values_ != nullptr && received_ == values_->size(); }
  void CountValues(int64_t elements) { received_ += elements; }
  // "3 of 6".
  std::string Received() const;

 private:
  int workers() const { return static_cast<int>(options_.names.size()); }
  void Accept(Agreement agreement, int64_t ring_epoch);

  const Options options_;
  std::vector<std::optional<v1::RingState>> states_;  // [worker]
  std::optional<Agreement> agreement_;
  std::shared_ptr<AlignedBuffer> values_;
  int64_t received_ = 0;  // elements of values_
};

}  // namespace cairn::allreduce

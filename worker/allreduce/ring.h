// The steps of one formation of the ring, as one worker sees them: who takes part with how much, and the mean
// of the gradients. Knows no transport: frames go in and out.
//
//   Begin ─► record to the right, others' come ───────────┐ all have come: the weights are known
//   Announce... ─► a bucket of the gradient is final ─────┤
//   chunks with others' sums come from the left ──────────┴─► add, send on │ whole: divide, send the mean
//   round
//                                                                          └─► all means are here: Await
//
// Each chunk is summed once, in the order of the ring from its owner on, and what comes of it goes to all: so
// all workers have the same bits, on every run. A worker of no examples adds nothing.
//
// Frames come from one thread at a time, Announce from any, the rest from the worker's own. Arithmetic is
// done by whoever brings the last thing that a chunk needs, outside the lock.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/frame.h"
#include "worker/allreduce/chunks.h"

namespace cairn::allreduce {

// To the right-hand neighbour: queues, does not block. The payload stays as it is while `owner` lives.
using SendToRight = std::function<void(const v1::RingHeader&, net::FloatSpans payload,
                                       const std::shared_ptr<const void>& owner)>;

class Ring {
 public:
  struct Options {
    int worker = 0;       // position in the ring
    int64_t version = 0;  // of everybody's values: the first step makes version + 1
    ChunkPlan plan;
    std::vector<int64_t> variable_begins;  // [variable + 1]: where each begins in the gradient, and the end
  };
  struct Step {
    std::vector<v1::StepRecord> records;  // [worker]
    bool end = false;                     // somebody ended it: there is no mean
    int64_t examples = 0;                 // of all
    // Of this worker's gradient in the sum, and what the sum is divided by: whole numbers. 0 without
    // examples, and at the end.
    float weight = 0, total = 0;
    // Of plan.size elements, until the next step begins. Null without examples, and at the end.
    const float* mean = nullptr;
  };

  Ring(Options options, SendToRight send);

  // Takes part in the step after the last one, with `gradients` (plan.size elements; unchanged once
  // announced, valid until Await has returned). Without examples, or at the end, they are not read.
  void Begin(int64_t examples, absl::Span<const float> gradients, bool end = false,
             std::optional<float> learning_rate = {}) ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient of this variable is final. Once for each, after Begin.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the end of the step. DEADLINE_EXCEEDED says what is missing; otherwise what Fail() was told.
  absl::StatusOr<Step> Await(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a ring whose plan is empty, and that so takes round records alone: the step that was begun, once it
  // has ended.
  std::optional<Step> Ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // What Fail() was told first; OK before. AwaitFailure() waits for it.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitFailure(TimePoint deadline) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last step begun; the version before any.
  int64_t step() const ABSL_LOCKS_EXCLUDED(mutex_);

  // INVALID_ARGUMENT naming what is wrong for whatever a worker of this ring does not send at this point; the
  // ring is of no use then.
  absl::Status OnRecord(const v1::StepRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnGradient(const v1::GradientChunk& chunk, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends every wait, now and later, with the first reason. Any thread.
  void Fail(absl::Status reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State : uint8_t {
    kNothing,  // of others is here
    kArrived,  // the sum of those to the left is here
    kAdding,   // somebody does
    kSummed,   // and passed on
    kMean,     // done
  };
  // What is known of a step; of this one and the next there may be something.
  struct Round {
    int64_t step = 0;
    bool begun = false;
    absl::Span<const float> gradients;
    std::vector<std::optional<v1::StepRecord>> records;  // [worker]
    int num_records = 0;
    bool end = false;
    bool weighed = false;  // all records are here, with examples: what follows holds
    float weight = 0, total = 0;
    std::vector<int> unannounced;  // [bucket] variables that are not final
    std::vector<State> states;     // [chunk]
    size_t left = 0;               // chunks without their mean
    std::shared_ptr<AlignedBuffer> sums;
  };

  int right() const { return (options_.worker + 1) % plan_.workers; }
  // How many have added to a chunk before this worker.
  int Before(const Chunk& chunk) const {
    return (options_.worker - chunk.owner + plan_.workers) % plan_.workers;
  }
  Round& round(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return rounds_[static_cast<size_t>(step % 2)];
  }
  void Reset(Round& round, int64_t step) const;
  absl::Status CheckStep(int64_t step, const char* what) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Done(const Round& round) const;
  Step ResultOf(const Round& round) const;
  void Weigh(Round& round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does what can be done with these chunks.
  void Advance(Round& round, size_t first, size_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(Round& round, size_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendChunk(const Round& round, size_t index, bool mean) const;

  const Options options_;
  const ChunkPlan& plan_;
  const SendToRight send_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_);  // the last one begun
  // [step % 2]. Which members a thread may use without the lock, the chunks' states say.
  std::array<Round, 2> rounds_;
};

}  // namespace cairn::allreduce

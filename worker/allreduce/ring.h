// The steps of one ring epoch, as seen by one worker: how many examples each worker contributes, and the mean
// of the gradients. Independent of the transport: frames go in and out.
//
//   Begin ─► record to the right; the others' records arrive ─┐ all have arrived: the weights are known
//   Announce... ─► a bucket of the gradient is final ─────────┤
//   chunks with partial sums arrive from the left ────────────┴─► add and pass on
//                                                                 │ sum complete: divide, send the mean round
//                                                                 └─► all means have arrived: Await returns
//
// Each chunk is summed once, in the order of the ring from its owner on, and the result goes to all workers.
// So all workers have the same bits, on every run. A worker without examples adds nothing.
//
// Frames come from one thread at a time, Announce from any thread, all other calls from the worker's own. The
// thread that provides the last input of a chunk does its arithmetic, outside the lock.
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
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "worker/allreduce/ring_means.h"
#include "worker/peer/chunks.h"

namespace cairn::allreduce {

class Ring {
 public:
  struct Options {
    int worker = 0;       // position in the ring
    int64_t version = 0;  // the version of all workers' values: the first step makes version + 1
    ChunkPlan plan;
    // [variable + 1] The offset of each variable in the gradient, and the end.
    std::vector<int64_t> variable_begins;
  };
  struct Step {
    std::vector<v1::StepRecord> records;  // [worker]
    bool end = false;                     // a worker ended training: there is no mean
    bool done = false;                    // no worker has gradients of its own any more
    int64_t examples = 0;                 // the sum over all workers
    // The weight of this worker's gradient in the sum, and the divisor of the sum: whole numbers. 0 if there
    // are no examples, or at the end.
    float weight = 0, total = 0;
    // [plan.size], valid until the next step begins. Null if there are no examples, or at the end.
    const float* mean = nullptr;
    std::shared_ptr<AlignedBuffer> memory{};  // of `mean`; null with one worker, whose gradient is the mean
  };

  Ring(Options options, SendToRight send);

  // Begins the step after the last one, with `gradients` (plan.size elements). An announced gradient must not
  // change, and all gradients must stay valid until Await has returned. They are not read if there are no
  // examples or `end` is true. `done`: this worker has no more gradients of its own.
  void Begin(int64_t examples, absl::Span<const float> gradients, bool end = false,
             std::optional<float> learning_rate = {}, bool done = false) ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient of this variable is final. To be called once per variable, after Begin.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the end of the step. DEADLINE_EXCEEDED, with what is missing; otherwise the reason given to
  // Fail().
  absl::StatusOr<Step> Await(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // After Await: whether the mean of the step has left for the right neighbour, so that its memory may change.
  bool HasSent() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The means over the workers' batches within a step. Begin() begins their step too.
  RingMeans& means() { return means_; }
  // For a ring with an empty plan, which passes records only: the result of the current step, if it has
  // ended.
  std::optional<Step> Ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The first reason given to Fail(), or OK. AwaitFailure() waits for it.
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitFailure(TimePoint deadline) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The last step that has begun; initially the version.
  int64_t step() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Both handle a frame from the left neighbour. INVALID_ARGUMENT, with the problem, for a frame that a
  // correct neighbour would not send at this point. The ring is unusable afterwards.
  absl::Status OnRecord(const v1::StepRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnGradient(const v1::GradientChunk& chunk, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes every call that waits now or later fail with the first reason. Any thread.
  void Fail(absl::Status reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State : uint8_t {
    kNothing,  // no partial sum has arrived
    kArrived,  // the partial sum of the workers to the left has arrived
    kAdding,   // a thread is adding this worker's gradient
    kSummed,   // the sum has been passed on
    kMean,     // the mean has arrived
  };
  // The state of a step. Data can arrive for the current step and the next one.
  struct Round {
    int64_t step = 0;
    bool begun = false;
    absl::Span<const float> gradients;
    std::vector<std::optional<v1::StepRecord>> records;  // [worker]
    int num_records = 0;
    bool end = false;
    bool weighed = false;  // all records have arrived, with examples: weight and total are set
    float weight = 0, total = 0;
    std::vector<int> unannounced;  // [bucket] number of variables that are not final
    std::vector<State> states;     // [chunk]
    size_t left = 0;               // number of chunks without their mean
    std::shared_ptr<AlignedBuffer> sums;
    std::shared_ptr<const void> frames;  // owns `sums` for frames in flight
  };

  int right() const { return (options_.worker + 1) % plan_.workers; }
  // The number of workers that add to a chunk before this worker does.
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
  // Advances these chunks as far as possible.
  void Advance(Round& round, size_t first, size_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(Round& round, size_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendChunk(const Round& round, size_t index, bool mean) const;

  const Options options_;
  const ChunkPlan& plan_;
  const SendToRight send_;
  RingMeans means_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_);  // the last step that has begun
  // [step % 2]. The states of the chunks determine which members a thread may use without the lock.
  std::array<Round, 2> rounds_;
};

}  // namespace cairn::allreduce

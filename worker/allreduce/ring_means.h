// The means over the batches of all workers within a step (client::Step::MeanOverWorkers), in one ring epoch. Each
// worker's values travel around the ring until all workers have them. Then each worker computes the mean in the order
// of the workers, so that all have the same bits, on every run.
//
// Owned by Ring. BeginStep(), Mean() and Skip() come from one thread at a time, frames from another, Fail() from any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/wire/frame.h"

namespace cairn::allreduce {

// Queues a frame for the right neighbour; does not block. The payload must not change while `owner` lives.
using SendToRight = std::function<void(const v1::RingHeader&, net::FloatSpans payload,
                                       const std::shared_ptr<const void>& owner)>;

class RingMeans {
 public:
  static constexpr int kMaxValues = 32768;     // of one mean
  static constexpr int64_t kMaxMeans = 16384;  // of one step

  // `worker`: this worker's position among `workers`. `step`: the last one before this ring epoch.
  RingMeans(int worker, int workers, int64_t step, SendToRight send)
      : worker_(worker), workers_(workers), send_(std::move(send)), step_(step) {}

  // `examples`: of this worker in the step.
  void BeginStep(int64_t step, int64_t examples) ABSL_LOCKS_EXCLUDED(mutex_);
  // Replaces `values` by their mean over the workers, each weighted by its examples. DEADLINE_EXCEEDED, naming the
  // positions of the workers whose values are missing; the reason given to Fail(); INVALID_ARGUMENT if another worker
  // has a different number of values, or if there are too many.
  absl::Status Mean(absl::Span<double> values, TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // This worker takes part in no mean of the step.
  void Skip() ABSL_LOCKS_EXCLUDED(mutex_);

  // From the left neighbour. INVALID_ARGUMENT for a part that a correct neighbour would not send at this point.
  absl::Status OnPart(const v1::BatchPart& part) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Step {
    std::set<int> skipped;                                  // workers that take part in no mean
    std::map<int64_t, std::map<int, v1::BatchPart>> means;  // [mean][worker]
  };

  absl::Status CheckPart(const v1::BatchPart& part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const v1::BatchPart& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const v1::BatchPart& part) const;
  std::vector<int> Missing(int64_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int worker_, workers_;
  const SendToRight send_;

  Mutex mutex_;
  CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_);  // the last one that this worker has begun
  int64_t examples_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the next mean within the step
  std::map<int64_t, Step> steps_
      ABSL_GUARDED_BY(mutex_);  // this step, and the next one of workers that are ahead
};

}  // namespace cairn::allreduce

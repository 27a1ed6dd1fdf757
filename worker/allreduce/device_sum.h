// The mean of all workers' gradients in one formation, where the devices that computed them add up between
// themselves (kernels/peer_group.h); the ring's own links then carry the records alone.
//
//   Begin ─► Announce..., Weigh when all records have come ─► Await: the mean is on the host
//
// All workers begin the same sums in the same order, whatever comes first: buckets, from the gradient's end.
//
// The worker's own thread. After an error it is of no use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "kernels/peer_group.h"

namespace cairn::allreduce {

class DeviceSum {
 public:
  // `variable_begins`: [variable + 1], where each begins in the gradient, and the end. `limit`: of each wait.
  // `bucket`: elements that are worth a sum.
  DeviceSum(std::unique_ptr<kernels::PeerGroup> group, const std::vector<int64_t>& variable_begins,
            Duration limit, int64_t bucket = kBucketFloats);

  // A step, with this worker's gradient in its device's memory, and host memory for the mean, both until the
  // next one or the end of this object.
  void Begin(absl::Span<float> gradient, absl::Span<float> mean);
  // The gradient of this variable is final. Once for each.
  void Announce(int variable);
  // The records' Ring::Step::weight and total, which is above 0; again with the same does nothing.
  void Weigh(float weight, float total);
  bool weighed() const { return weighed_; }
  // After Weigh(). When all is announced: waits for the mean. As kernels::PeerGroup::Await().
  absl::Status Await();

 private:
  // As of a worker's devices (worker/nn/gradient_sum): enough that a call's fixed cost does not count.
  static constexpr int64_t kBucketFloats = 1 << 20;

  // Whole variables, neighbours in the gradient.
  struct Bucket {
    int64_t begin = 0, end = 0;
    int variables = 0;
    int unannounced = 0;
  };

  void Advance();

  TimePoint Deadline() const { return std::chrono::steady_clock::now() + limit_; }

  const std::unique_ptr<kernels::PeerGroup> group_;
  const Duration limit_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // [variable]
  // Of the step.
  absl::Span<float> gradient_, mean_;
  bool weighed_ = false;
  float weight_ = 0;
  float divisor_ = 1;  // for the host to divide by
  size_t begun_ = 0;   // buckets
};

}  // namespace cairn::allreduce

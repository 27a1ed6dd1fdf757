// The mean of all workers' gradients in one ring epoch, summed by the devices that computed them
// (kernels/peer_group.h). The links of the ring carry only the records.
//
//   Begin ─► Announce..., Weigh when all records have arrived ─► Await: the mean is on the host
//
// All workers begin the same sums in the same order, regardless of which gradients are final first: bucket by
// bucket from the end of the gradient.
//
// Used by the worker's own thread. Unusable after an error.
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
  // `variable_begins`: [variable + 1], the offset of each variable in the gradient, and the end of the last.
  // `limit`: for each wait. `bucket`: the minimum number of elements per sum.
  DeviceSum(std::unique_ptr<kernels::PeerGroup> group, const std::vector<int64_t>& variable_begins,
            Duration limit, int64_t bucket = kBucketFloats);

  // Begins a step. `gradient` is this worker's, in the memory of its device; `mean`, the result, is in host
  // memory. Both must stay valid until the next step or the end of this object.
  void Begin(absl::Span<float> gradient, absl::Span<float> mean);
  // The gradient of this variable is final. To be called once per variable.
  void Announce(int variable);
  // Sets the weight of this worker's gradient and the total, above 0: Ring::Step::weight and total. Repeating
  // the call has no effect.
  void Weigh(float weight, float total);
  bool weighed() const { return weighed_; }
  // After Weigh(), when all variables have been announced: waits for the mean. Errors are those of
  // kernels::PeerGroup::Await().
  absl::Status Await();

 private:
  // The same size as for the devices of one worker (nn/gradient_sum): large enough that the fixed cost
  // of a call does not matter.
  static constexpr int64_t kBucketFloats = 1 << 20;

  // Whole variables that are adjacent in the gradient.
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
  // State of the current step.
  absl::Span<float> gradient_, mean_;
  bool weighed_ = false;
  float weight_ = 0;
  float divisor_ = 1;  // the host divides the sum by this
  size_t begun_ = 0;   // number of buckets whose sums have begun
};

}  // namespace cairn::allreduce

#include "worker/allreduce/device_sum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/core/status.h"

namespace cairn::allreduce {

DeviceSum::DeviceSum(std::unique_ptr<kernels::PeerGroup> group, const std::vector<int64_t>& variable_begins,
                     Duration limit, int64_t bucket)
    : group_(std::move(group)), limit_(limit), bucket_of_(variable_begins.size() - 1) {
  // The backward pass goes from the end of the model to its beginning.
  for (size_t variable = bucket_of_.size(); variable-- > 0;) {
    if (buckets_.empty() || buckets_.back().end - buckets_.back().begin >= bucket) {
      buckets_.push_back({.end = variable_begins[variable + 1]});
    }
    buckets_.back().begin = variable_begins[variable];
    ++buckets_.back().variables;
    bucket_of_[variable] = buckets_.size() - 1;
  }
}

void DeviceSum::Begin(absl::Span<float> gradient, absl::Span<float> mean) {
  gradient_ = gradient;
  mean_ = mean;
  weighed_ = false;
  begun_ = 0;
  for (Bucket& bucket : buckets_) bucket.unannounced = bucket.variables;
}

void DeviceSum::Announce(int variable) {
  --buckets_[bucket_of_[static_cast<size_t>(variable)]].unannounced;
  Advance();
}

void DeviceSum::Weigh(float weight, float total) {
  if (weighed_) return;
  // Division by a power of two is exact at any point. Division by another number must come after the sum, so
  // that gradients are summed with integer weights.
  int exponent = 0;
  const bool exact = std::frexp(total, &exponent) == 0.5f;
  divisor_ = exact ? 1 : total;
  weight_ = exact ? weight / total : weight;
  weighed_ = true;
  Advance();
}

void DeviceSum::Advance() {
  for (; weighed_ && begun_ < buckets_.size() && buckets_[begun_].unannounced == 0; ++begun_) {
    const Bucket& bucket = buckets_[begun_];
    if (bucket.end == bucket.begin) continue;
    group_->Begin(begun_,
                  {.part = gradient_.data() + bucket.begin,
                   .weight = weight_,
                   .count = bucket.end - bucket.begin,
                   .host = mean_.data() + bucket.begin},
                  Deadline());
  }
}

absl::Status DeviceSum::Await() {
  CAIRN_CHECK(begun_ == buckets_.size());
  const TimePoint deadline = Deadline();
  for (size_t index = 0; index < buckets_.size(); ++index) {
    const Bucket& bucket = buckets_[index];
    if (bucket.end == bucket.begin) continue;
    CAIRN_RETURN_IF_ERROR(group_->Await(index, deadline));
    if (divisor_ == 1) continue;
    float* const mean = mean_.data();
    std::transform(mean + bucket.begin, mean + bucket.end, mean + bucket.begin,
                   [this](float sum) { return sum / divisor_; });
  }
  return absl::OkStatus();
}

}  // namespace cairn::allreduce

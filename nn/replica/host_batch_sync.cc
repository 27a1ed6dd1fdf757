#include "nn/replica/host_batch_sync.h"

#include <algorithm>

#include "common/core/status.h"

namespace cairn::nn {

class HostBatchSync::Device final : public BatchSync {
 public:
  Device(HostBatchSync& host, size_t index) : host_(host), index_(index) {}
  double share() const override {
    MutexLock lock(host_.mutex_);
    return host_.shares_[index_];
  }
  absl::Status Sum(absl::Span<double> values) override { return host_.Sum(index_, values); }

 private:
  HostBatchSync& host_;
  const size_t index_;
};

HostBatchSync::HostBatchSync(size_t devices) {
  for (size_t i = 0; i < devices; ++i) devices_.push_back(std::make_unique<Device>(*this, i));
}

void HostBatchSync::Begin(absl::Span<const int64_t> begins) {
  MutexLock lock(mutex_);
  shares_.clear();
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    shares_.push_back(static_cast<double>(begins[i + 1] - begins[i]) / static_cast<double>(begins.back()));
  }
  parts_.assign(shares_.size(), {});
  arrived_ = 0;
  aborted_ = false;
}

void HostBatchSync::Abort() {
  MutexLock lock(mutex_);
  aborted_ = true;
  summed_.NotifyAll();
}

absl::Status HostBatchSync::Sum(size_t device, absl::Span<double> values) {
  MutexLock lock(mutex_);
  const int64_t before = sums_;
  parts_[device].assign(values.begin(), values.end());
  if (++arrived_ == parts_.size()) {
    sum_.assign(values.size(), 0);
    for (const std::vector<double>& part : parts_) {
      CAIRN_CHECK(part.size() == sum_.size());
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += part[i];
    }
    arrived_ = 0;
    ++sums_;
    summed_.NotifyAll();
  }
  while (sums_ == before && !aborted_) summed_.Wait(mutex_);
  if (sums_ == before) return absl::AbortedError("another device of the step has failed");
  // The next sum needs this device, so this one is still there.
  std::copy(sum_.begin(), sum_.end(), values.begin());
  return absl::OkStatus();
}

}  // namespace cairn::nn

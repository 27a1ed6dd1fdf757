#include "nn/replica/host_batch_sync.h"

#include <algorithm>
#include <utility>

#include "common/core/status.h"

namespace cairn::nn {

class HostBatchSync::Device final : public BatchSync {
 public:
  Device(HostBatchSync& host, size_t index) : host_(host), index_(index) {}
  absl::Status Mean(absl::Span<double> values) override { return host_.Mean(index_, values); }

 private:
  HostBatchSync& host_;
  const size_t index_;
};

HostBatchSync::HostBatchSync(size_t devices, BatchSync* workers) : workers_(workers) {
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
  failure_ = absl::OkStatus();
}

void HostBatchSync::Abort() {
  MutexLock lock(mutex_);
  failure_.Update(absl::AbortedError("another device of the step has failed"));
  changed_.NotifyAll();
}

std::vector<double> HostBatchSync::MeanOverDevices() const {
  std::vector<double> mean(parts_.front().size());
  for (size_t device = 0; device < parts_.size(); ++device) {
    CAIRN_CHECK(parts_[device].size() == mean.size());
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += shares_[device] * parts_[device][i];
  }
  return mean;
}

absl::Status HostBatchSync::Mean(size_t device, absl::Span<double> values) {
  MutexLock lock(mutex_);
  const int64_t before = means_;
  parts_[device].assign(values.begin(), values.end());
  if (++arrived_ == parts_.size()) {
    std::vector<double> mean = MeanOverDevices();
    arrived_ = 0;
    if (workers_ != nullptr) {
      mutex_.Unlock();
      const absl::Status over_workers = workers_->Mean(absl::MakeSpan(mean));
      mutex_.Lock();
      failure_.Update(over_workers);
    }
    if (failure_.ok()) {
      mean_ = std::move(mean);
      ++means_;
    }
    changed_.NotifyAll();
  }
  while (means_ == before && failure_.ok()) changed_.Wait(mutex_);
  if (means_ == before) return failure_;
  // The next mean needs this device, so this one is still there.
  std::copy(mean_.begin(), mean_.end(), values.begin());
  return absl::OkStatus();
}

}  // namespace cairn::nn

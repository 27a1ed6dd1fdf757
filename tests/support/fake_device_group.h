// A group of devices whose memory the host can read. It computes sums as late as possible, when they are
// awaited, and fails on request.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "kernels/device_group.h"

namespace cairn::kernels {

class FakeDeviceGroup final : public DeviceGroup {
 public:
  // The test's view of a group that a replica owns. `fault`: the result of every Await() while it is set.
  struct Log {
    Mutex mutex;
    std::vector<size_t> begun ABSL_GUARDED_BY(mutex);
    int under_way ABSL_GUARDED_BY(mutex) = 0;
    absl::Status fault ABSL_GUARDED_BY(mutex);
  };
  explicit FakeDeviceGroup(Log& log) : log_(log) {}

  const std::string& name() const override { return name_; }

  void Begin(size_t slot, const Sum& sum) override {
    MutexLock lock(log_.mutex);
    log_.begun.push_back(slot);
    ++log_.under_way;
    sums_[slot] = {
        {sum.parts.begin(), sum.parts.end()}, {sum.weights.begin(), sum.weights.end()}, sum.count, sum.host};
  }

  absl::Status Await(size_t slot) override {
    MutexLock lock(log_.mutex);
    const Kept sum = sums_.at(slot);
    sums_.erase(slot);
    --log_.under_way;
    if (!log_.fault.ok()) return log_.fault;
    for (int64_t i = 0; i < sum.count; ++i) {
      float total = 0;
      for (size_t device = 0; device < sum.parts.size(); ++device) {
        total += sum.weights[device] * sum.parts[device][i];
        sum.parts[device][i] = std::nanf("");  // not defined any more
      }
      sum.host[i] = total;
    }
    return absl::OkStatus();
  }

 private:
  struct Kept {
    std::vector<float*> parts;
    std::vector<float> weights;
    int64_t count = 0;
    float* host = nullptr;
  };
  Log& log_;
  const std::string name_ = "a fake";
  std::map<size_t, Kept> sums_;  // [slot]
};

}  // namespace cairn::kernels

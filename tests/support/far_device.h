// A CPU whose memory is not the host's: every copy that a GPU needs must be made, or the results are wrong.
// Copies to the host arrive only when they are awaited, as late as with a GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/mutex.h"
#include "kernels/cpu/device.h"

namespace cairn::kernels {

class FarDevice : public Device {
 public:
  FarDevice() : FarDevice(CreateCpuDevice(0, 1).value()) {}
  explicit FarDevice(std::unique_ptr<Device> cpu) : cpu_(std::move(cpu)) {}
  const std::string& name() const override { return cpu_->name(); }
  std::string Description() const override { return cpu_->Description(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats,
                                                         absl::string_view what) override {
    return cpu_->Allocate(num_floats, what);
  }
  absl::Status CopyToDevice(const void* host, void* device, int64_t bytes) override {
    bytes_up_ += bytes;
    if (IsPinned(host, bytes)) bytes_up_pinned_ += bytes;
    return cpu_->CopyToDevice(host, device, bytes);
  }
  absl::Status CopyToHost(const void* device, void* host, int64_t bytes) override {
    bytes_down_ += bytes;
    MutexLock lock(mutex_);
    late_.push_back({device, host, static_cast<size_t>(bytes)});
    return absl::OkStatus();
  }
  absl::Status CopyOnDevice(const float* from, float* to, int64_t count) override {
    return cpu_->CopyOnDevice(from, to, count);
  }
  absl::Status Synchronize() override {
    Arrive();
    return cpu_->Synchronize();
  }
  absl::Status SeedRandom(uint64_t seed, int64_t first_example) override {
    return cpu_->SeedRandom(seed, first_example);
  }
  absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void* host, int64_t bytes) override {
    return std::make_unique<RecordedPin>(*this, static_cast<const char*>(host), bytes);
  }
  absl::StatusOr<std::unique_ptr<Marker>> MakeMarker() override { return std::make_unique<SetMarker>(*this); }
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> work) override {
    return cpu_->Record(work);
  }
  bool host_memory_is_device_memory() const override { return false; }
  ElementType compute_type() const override { return cpu_->compute_type(); }
  OpFactory& ops() override { return cpu_->ops(); }

  int64_t bytes_up() const { return bytes_up_; }
  // Those of them that were copied from pinned memory.
  int64_t bytes_up_pinned() const { return bytes_up_pinned_; }
  int64_t bytes_down() const { return bytes_down_; }
  int pinned() {
    MutexLock lock(mutex_);
    return static_cast<int>(pinned_.size());
  }

 private:
  struct Copy {
    const void* from;
    void* to;
    size_t bytes;
  };
  class SetMarker final : public Marker {
   public:
    explicit SetMarker(FarDevice& device) : device_(device) {}
    absl::Status Set() override {
      set_ = true;
      return absl::OkStatus();
    }
    absl::Status Wait() override {
      if (!set_) return absl::InternalError("waits for a marker never set");
      device_.Arrive();
      return absl::OkStatus();
    }

   private:
    FarDevice& device_;
    std::atomic<bool> set_ = false;
  };
  class RecordedPin final : public PinnedMemory {
   public:
    RecordedPin(FarDevice& device, const char* host, int64_t bytes) : device_(device), host_(host) {
      MutexLock lock(device_.mutex_);
      device_.pinned_.emplace(host, bytes);
    }
    ~RecordedPin() override {
      MutexLock lock(device_.mutex_);
      device_.pinned_.erase(device_.pinned_.find(host_));
    }

   private:
    FarDevice& device_;
    const char* const host_;
  };

  bool IsPinned(const void* host, int64_t bytes) {
    const auto* const begin = static_cast<const char*>(host);
    MutexLock lock(mutex_);
    const auto after = pinned_.upper_bound(begin);
    return after != pinned_.begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
  }

  void Arrive() {
    MutexLock lock(mutex_);
    for (const Copy& copy : late_) std::memcpy(copy.to, copy.from, copy.bytes);
    late_.clear();
  }

  const std::unique_ptr<Device> cpu_;
  std::atomic<int64_t> bytes_up_ = 0, bytes_up_pinned_ = 0, bytes_down_ = 0;
  Mutex mutex_;
  std::multimap<const char*, int64_t> pinned_ ABSL_GUARDED_BY(mutex_);  // memory to its bytes
  std::vector<Copy> late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::kernels

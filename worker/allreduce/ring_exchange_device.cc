// The parts of RingExchange for workers whose devices sum the gradients: joining the group, the sum of a
// step, and the handling of faults.
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "worker/allreduce/ring_exchange.h"

namespace cairn::allreduce {

void RingExchange::OfferDevice(v1::RingState& mine) {
  const bool adds_up = options_.names.size() > 1 && version() < final_version() && !finished_;
  if (options_.device == nullptr || renounced_ || !adds_up) return;
  std::string group;
  if (options_.worker == 0) {
    auto drawn = options_.device->DrawGroup();
    if (!drawn.ok()) {
      LogWarning("gradients are summed around the ring: ", drawn.status().message());
      renounced_ = true;
      return;
    }
    group = *std::move(drawn);
  }
  v1::DeviceSums& sums = *mine.mutable_device_sums();
  sums.set_library(options_.device->library());
  sums.set_device(options_.device->id());
  sums.set_group(std::move(group));
}

absl::Status RingExchange::JoinDevices(const Agreement& agreement) {
  device_sum_ = nullptr;
  if (agreement.library.empty()) return absl::OkStatus();
  auto group = options_.device->Join({.group = agreement.states[0].device_sums().group(),
                                      .member = options_.worker,
                                      .members = static_cast<int>(options_.names.size()),
                                      .look = [ring = agreement.ring] { return ring->failure(); }});
  if (!group.ok()) return AfterDeviceFault(group.status());
  std::vector<int64_t> begins;
  for (const net::VariableInfo& variable : options_.variables) begins.push_back(variable.offset);
  begins.push_back(size());
  device_sum_ = std::make_unique<DeviceSum>(*std::move(group), begins, options_.step_timeout);
  return absl::OkStatus();
}

absl::Status RingExchange::AfterDeviceFault(const absl::Status& fault) {
  LogWarning("the devices cannot sum gradients: ", fault.message());
  const absl::Status broken = ring_->AwaitFailure(std::chrono::steady_clock::now() + options_.links_notice);
  if (!broken.ok()) return broken;
  renounced_ = true;
  LogWarning("no worker is lost: gradients are summed around the ring from now on");
  const auto why =
      absl::AbortedError(absl::StrCat("the device of ", member_.name(options_.worker),
                                      " cannot sum gradients with the other devices: ", fault.message()));
  member_.GiveUp(ring_epoch_, why);
  return why;
}

void RingExchange::LogTransport(const Agreement& agreement) {
  std::string how;
  if (!agreement.library.empty()) {
    how =
        absl::StrCat("gradients are summed by ", agreement.library, " over ", options_.names.size(), " GPUs");
  } else if (!agreement.why_ring.empty()) {
    how = absl::StrCat("gradients are summed around the ring: ", agreement.why_ring);
  }
  if (how != told_ && !how.empty()) LogInfo(how);
  told_ = std::move(how);
}

void RingExchange::BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean, int64_t examples) {
  device_mean_ = mean;
  device_sum_->Begin(gradients, mean);
  ring_->Begin(examples, {}, end_wanted_, learning_rate_wanted_);
}

absl::Status RingExchange::AwaitDeviceSum(Ring::Step& step) {
  if (device_sum_ == nullptr || step.total == 0) return absl::OkStatus();
  device_sum_->Weigh(step.weight, step.total);
  const absl::Status summed = device_sum_->Await();
  if (!summed.ok()) return AfterDeviceFault(summed);
  step.mean = device_mean_.data();
  return absl::OkStatus();
}

void RingExchange::Announce(int variable) {
  if (device_sum_ == nullptr) {
    ring_->Announce(variable);
    return;
  }
  if (!device_sum_->weighed()) {
    const std::optional<Ring::Step> known = ring_->Ended();
    if (known.has_value() && known->total > 0) device_sum_->Weigh(known->weight, known->total);
  }
  device_sum_->Announce(variable);
}

}  // namespace cairn::allreduce

#include "worker/allreduce/device_group.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"

namespace cairn::allreduce {

void DeviceGroup::Offer(v1::RingState& mine) {
  if (options_.device == nullptr || renounced_ || options_.workers == 1) return;
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

absl::Status DeviceGroup::Join(const Agreement& agreement) {
  sum_ = nullptr;
  ring_ = agreement.ring;
  ring_epoch_ = agreement.ring_epoch;
  if (agreement.library.empty()) return absl::OkStatus();
  auto group = options_.device->Join({.group = agreement.states[0].device_sums().group(),
                                      .member = options_.worker,
                                      .members = options_.workers,
                                      .look = [ring = agreement.ring] { return ring->failure(); }});
  if (!group.ok()) return AfterFault(group.status());
  sum_ = std::make_unique<DeviceSum>(*std::move(group), options_.variable_begins, options_.step_timeout);
  return absl::OkStatus();
}

absl::Status DeviceGroup::AfterFault(const absl::Status& fault) {
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

void DeviceGroup::LogTransport(const Agreement& agreement) {
  std::string how;
  if (!agreement.library.empty()) {
    how = absl::StrCat("gradients are summed by ", agreement.library, " over ", options_.workers, " GPUs");
  } else if (!agreement.why_ring.empty()) {
    how = absl::StrCat("gradients are summed around the ring: ", agreement.why_ring);
  }
  if (how != told_ && !how.empty()) LogInfo(how);
  told_ = std::move(how);
}

void DeviceGroup::Begin(absl::Span<float> gradients, absl::Span<float> mean) {
  mean_ = mean;
  sum_->Begin(gradients, mean);
}

void DeviceGroup::Announce(int variable) {
  if (!sum_->weighed()) {
    const std::optional<Ring::Step> known = ring_->Ended();
    if (known.has_value() && known->total > 0) sum_->Weigh(known->weight, known->total);
  }
  sum_->Announce(variable);
}

absl::Status DeviceGroup::Await(Ring::Step& step) {
  if (sum_ == nullptr || step.total == 0) return absl::OkStatus();
  sum_->Weigh(step.weight, step.total);
  const absl::Status summed = sum_->Await();
  if (!summed.ok()) return AfterFault(summed);
  step.mean = mean_.data();
  return absl::OkStatus();
}

}  // namespace cairn::allreduce

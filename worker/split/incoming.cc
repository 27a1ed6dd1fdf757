#include "worker/split/incoming.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::split {

void Incoming::Clear() {
  MutexLock lock(mutex_);
  targets_.clear();
}

void Incoming::Expect(const v1::StageTensorName& tensor, float* to, int64_t size) {
  MutexLock lock(mutex_);
  targets_[KeyOf(tensor)] = {.to = to, .size = size};
}

absl::StatusOr<Incoming::Taken> Incoming::Take(const v1::StageTensorName& tensor, net::Payload payload) {
  const int64_t bytes = net::PayloadBytes(payload);
  const int64_t floats = bytes / int64_t{sizeof(float)};
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "split: ", bytes, " bytes at ", tensor.offset(), " of ", v1::SplitKind_Name(tensor.kind()), " ",
        tensor.index(), ".", tensor.slot(), " of micro-batch ", tensor.micro_batch(), ", ", why...));
  };
  float* to = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = targets_.find(KeyOf(tensor));
    if (found == targets_.end()) return refuse("which is not expected");
    const Target& target = found->second;
    if (floats == 0 || bytes % int64_t{sizeof(float)} != 0 || tensor.offset() != target.arrived ||
        floats > target.size - target.arrived) {
      return refuse("after ", target.arrived, " of ", target.size, " floats");
    }
    to = target.to + target.arrived;
  }
  CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, to));
  MutexLock lock(mutex_);
  const auto target = targets_.find(KeyOf(tensor));
  if (target == targets_.end()) return refuse("which is no longer expected");
  target->second.arrived += floats;
  return Taken{.floats = floats, .whole = target->second.arrived == target->second.size};
}

const float* Incoming::Find(const v1::StageTensorName& tensor) {
  MutexLock lock(mutex_);
  const auto found = targets_.find(KeyOf(tensor));
  if (found == targets_.end() || found->second.arrived != found->second.size) return nullptr;
  return found->second.to;
}

}  // namespace cairn::split

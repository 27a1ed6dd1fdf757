#include "nn/layer/decoding.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::nn {

absl::Status DecodingCache::Reserve(size_t index, int64_t floats, absl::string_view what) {
  if (kept_.size() <= index) kept_.resize(index + 1);
  Kept& kept = kept_[index];
  if (kept.memory != nullptr) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(kept.memory, device_.Allocate(batch_ * floats, what));
  kept.floats = floats;
  return absl::OkStatus();
}

absl::Status DecodingCache::Reorder(absl::Span<const int64_t> from) {
  for (Kept& kept : kept_) {
    if (kept.memory == nullptr) continue;
    if (kept.spare == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(kept.spare, device_.Allocate(batch_ * kept.floats, "reordered sequences"));
    }
    for (size_t to = 0; to < from.size(); ++to) {
      CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(kept.memory->data() + from[to] * kept.floats,
                                                 kept.spare->data() + static_cast<int64_t>(to) * kept.floats,
                                                 kept.floats));
    }
    std::swap(kept.memory, kept.spare);
  }
  return absl::OkStatus();
}

absl::Status NoGradientOfDecoding() {
  return absl::InternalError("an op of decoding has no gradient");
}

absl::Status CopySteps(const StepCopy& copy, const float* steps, int64_t first, float* sequence,
                       kernels::Device& device) {
  for (int64_t example = 0; example < copy.batch; ++example) {
    CAIRN_RETURN_IF_ERROR(device.CopyOnDevice(steps + example * copy.count * copy.floats,
                                              sequence + (example * copy.length + first) * copy.floats,
                                              copy.count * copy.floats));
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn

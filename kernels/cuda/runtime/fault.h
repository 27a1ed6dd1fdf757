// Bad input that only the device sees: kernels record it in pinned memory, which the host checks when it
// delivers results. Costs nothing if there is no fault.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/handles.h"

namespace cairn::kernels::cuda {

// The upper half contains the index, and the lower half contains the bits of the value, or a number. So the smallest
// word has the first index.
using FaultWord = unsigned long long;
inline constexpr FaultWord kNoFault = ~FaultWord{0};
inline constexpr int64_t kMaxFaultIndices = int64_t{1} << 32;

__device__ inline void NoteFault(FaultWord* word, int64_t place, uint32_t number) {
  atomicMin(word, static_cast<FaultWord>(place) << 32 | number);
}
__device__ inline void NoteFault(FaultWord* word, int64_t place, float value) {
  NoteFault(word, place, __float_as_uint(value));
}

// For values that the host reads itself at `place`.
__device__ inline void NoteFault(FaultWord* word, int64_t place) {
  NoteFault(word, place, uint32_t{0});
}

class Fault {
 public:
  static absl::StatusOr<Fault> Create() {
    Fault fault;
    CAIRN_ASSIGN_OR_RETURN(fault.word_, PinnedArray<FaultWord>::Create(1));
    fault.word_[0] = kNoFault;
    return fault;
  }
  FaultWord* word() const { return word_.data(); }

  struct Noted {
    int64_t place = 0;
    float value = 0;
    uint32_t number = 0;  // the same bits
  };
  // Returns and clears the first fault. The device must be idle.
  std::optional<Noted> Take() {
    const FaultWord word = std::exchange(word_[0], kNoFault);
    if (word == kNoFault) return std::nullopt;
    Noted noted = {.place = static_cast<int64_t>(word >> 32), .number = static_cast<uint32_t>(word)};
    std::memcpy(&noted.value, &noted.number, sizeof(noted.number));
    return noted;
  }

 private:
  PinnedArray<FaultWord> word_;
};

}  // namespace cairn::kernels::cuda

// The delay before the next attempt: doubling, jittered, bounded.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/core/random.h"

namespace cairn::net {

class Backoff {
 public:
  // `seed` should differ between tasks, so that they do not all retry at the same time.
  explicit Backoff(uint64_t seed, std::chrono::milliseconds first = std::chrono::milliseconds(50),
                   std::chrono::milliseconds longest = std::chrono::milliseconds(2000))
      : random_(seed, "backoff"), first_(first), longest_(longest), next_(first) {}

  // Between half the current step and the whole of it; the step then doubles.
  std::chrono::milliseconds Next() {
    const auto step = next_;
    next_ = std::min(longest_, next_ * 2);
    return std::chrono::milliseconds(
        static_cast<int64_t>(static_cast<float>(step.count()) * random_.NextUniform(0.5f, 1.0f)));
  }
  void Reset() { next_ = first_; }

 private:
  Random random_;
  std::chrono::milliseconds first_, longest_, next_;
};

}  // namespace cairn::net

// How much payload the other end of a stream wants to have been sent. It is advice: who has waited for more
// for kPatience goes on without, so an end that says nothing more, or wrong things, costs that much and no
// more. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace cairn::net {

class Allowance {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  static constexpr auto kPatience = std::chrono::milliseconds(250);

  // The other end: so many bytes, from the stream's beginning. What is less than it said before is old.
  void Set(uint64_t bytes) {
    if (lapsed_ && bytes <= sent_) return;
    if (!lapsed_ && allowed_ != kNoLimit && bytes <= allowed_) return;
    lapsed_ = false;
    allowed_ = bytes;
    waits_until_.reset();
  }
  // So many more bytes are being sent.
  void Add(uint64_t bytes) { sent_ += bytes; }
  // Whether another payload may be sent now; if not, until when to wait for that.
  std::optional<TimePoint> WaitsUntil(TimePoint now) {
    if (sent_ < allowed_) return std::nullopt;
    if (!waits_until_.has_value()) waits_until_ = now + kPatience;
    if (now < *waits_until_) return waits_until_;
    lapsed_ = true;
    allowed_ = kNoLimit;
    waits_until_.reset();
    return std::nullopt;
  }

 private:
  uint64_t sent_ = 0;
  uint64_t allowed_ = kNoLimit;
  bool lapsed_ = false;  // what allows less than has been sent comes late
  std::optional<TimePoint> waits_until_;
};

}  // namespace cairn::net

// Credit-based flow control: how many payload bytes the other end of a stream allows this end to send,
// counted from the beginning of the stream. Credit is advisory. A sender that has waited kPatience for more
// credit sends without it, so a peer that stops granting credit, or grants nonsense, costs only that delay.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace cairn::net {

class CreditLimit {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  static constexpr auto kPatience = std::chrono::milliseconds(250);

  // The other end grants `bytes`, counted from the beginning of the stream. A grant that is not above the
  // last one is outdated and ignored, unless the last one was kNoLimit.
  void Set(uint64_t bytes) {
    if (lapsed_ && bytes <= sent_) return;
    if (!lapsed_ && allowed_ != kNoLimit && bytes <= allowed_) return;
    lapsed_ = false;
    allowed_ = bytes;
    waits_until_.reset();
  }
  // Records that `bytes` more are being sent.
  void Add(uint64_t bytes) { sent_ += bytes; }
  // Returns nullopt if another payload may be sent now, otherwise the time until which to wait for more
  // credit.
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
  // The credit ran out and the sender continues without it. Grants of no more than the bytes already sent
  // come too late and are ignored.
  bool lapsed_ = false;
  std::optional<TimePoint> waits_until_;
};

}  // namespace cairn::net

// How long a client may be silent: until its first message after the handshake, and later between messages,
// unless it waits for an answer. Not thread-safe.
#pragma once

#include <chrono>

#include "absl/functional/function_ref.h"

namespace cairn::net {

class SilenceLimit {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  SilenceLimit(std::chrono::milliseconds first, std::chrono::milliseconds idle, TimePoint now)
      : first_(first), idle_(idle), heard_(now) {}

  // Returns how long the client may still be silent; zero: it has been silent for too long. `spoke`: whether a
  // message has arrived since the last call. `owes_answer` is called when the limit has passed.
  std::chrono::milliseconds Left(TimePoint now, bool spoke, absl::FunctionRef<bool()> owes_answer) {
    if (spoke) {
      heard_ = now;
      spoken_ = true;
    }
    const auto limit = spoken_ ? idle_ : first_;
    if (now - heard_ < limit) return std::chrono::ceil<std::chrono::milliseconds>(heard_ + limit - now);
    if (!spoken_ || !owes_answer()) return std::chrono::milliseconds(0);
    heard_ = now;
    return limit;
  }

 private:
  const std::chrono::milliseconds first_, idle_;
  TimePoint heard_;  // when a new message was last noticed
  bool spoken_ = false;
};

}  // namespace cairn::net

// What a worker's gradients and values took on the wire, and what their encodings left out. Thread-safe;
// written by the client, read by those who look.
#pragma once

#include <atomic>
#include <cmath>

#include "common/core/meters.h"

namespace cairn::client {

struct WireMeters {
  // Payloads of pushes and of the values in their answers, and what they take in float32. What is sent again
  // counts again.
  Counter push_bytes, push_float32_bytes, pull_bytes, pull_float32_bytes;
  // Of gradients in an encoding that is for them alone, with what was kept back before: sums of squares of
  // all elements, and of what did not travel of each.
  std::atomic<double> squares{0}, missing_squares{0};

  // How much did not travel: the length of that as a part of the whole's; 0 where everything does.
  double error() const {
    const double whole = squares.load(std::memory_order_relaxed);
    return whole > 0 ? std::sqrt(missing_squares.load(std::memory_order_relaxed) / whole) : 0;
  }
};

}  // namespace cairn::client

// Counts the bytes of a worker's gradients and values on the wire, and what lossy encodings left out.
// Thread-safe; written by the client, read by the monitoring.
#pragma once

#include <atomic>
#include <cmath>

#include "common/core/metrics.h"

namespace cairn::client {

struct WireMetrics {
  // Payload bytes of pushes and of the values in their answers, of reads of rows, and their size as float32. Repeated
  // data counts again.
  Counter push_bytes, push_float32_bytes, pull_bytes, pull_float32_bytes;
  // The part of push_bytes and pull_bytes that belongs to rows of tables: keys, gradients of rows, rows. Reads of rows
  // beside the steps are included. A pushed row is one whose gradient is pushed.
  Counter row_push_bytes, row_pull_bytes, pushed_rows, pulled_rows;
  // Gradients in lossy encodings, with the residuals added to them: the sum of squares of all elements, and
  // of the part that was not sent.
  std::atomic<double> squares{0}, missing_squares{0};

  // The relative error: the norm of what was not sent divided by the norm of the gradients; 0 if all is sent.
  double error() const {
    const double whole = squares.load(std::memory_order_relaxed);
    return whole > 0 ? std::sqrt(missing_squares.load(std::memory_order_relaxed) / whole) : 0;
  }
};

}  // namespace cairn::client

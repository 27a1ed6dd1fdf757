// The logarithm of a sum of exponentials, for metrics, which the host computes. Thread-safe.
#pragma once

#include "absl/types/span.h"

namespace cairn::kernels::cpu {

struct LogSum {
  float largest = 0;  // of the logits
  float log_sum = 0;  // log(sum_j exp(logit_j - largest))
};

// The logits of one row, at least one. Up to 2e-7 of the exact value, also for many logits.
LogSum LogSumOf(absl::Span<const float> logits);

}  // namespace cairn::kernels::cpu

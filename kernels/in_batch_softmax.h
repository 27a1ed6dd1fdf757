// LossKind::kInBatchSoftmax: the parts that the backends share.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/core/host_device.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// An output [width] is a query [dim], a candidate [dim] and, with `sampling`, the candidate's sampling probability.
struct InBatch {
  int64_t batch = 0, width = 0, dim = 0;
  bool sampling = false;
  float inverse_temperature = 1;
};
inline InBatch MakeInBatch(const LossParams& params) {
  return {.batch = params.batch,
          .width = params.width,
          .dim = params.width / 2,
          .sampling = params.sampling_probability,
          .inverse_temperature = static_cast<float>(1 / params.temperature)};
}

// The logarithm that is subtracted from the scores of a candidate: log(clip(p, 1e-6, 1)), as in keras_rs'
// SamplingProbabilityCorrection (keras_rs/src/layers/retrieval/sampling_probability_correction.py).
CAIRN_HOST_DEVICE inline float LogSamplingProbability(float p) {
  if (p < 1e-6f) p = 1e-6f;
  return std::log(p > 1.0f ? 1.0f : p);
}

// Whether the candidate of example j is left out of the softmax of example i: it is the same item.
CAIRN_HOST_DEVICE inline bool IsAccidentalHit(const float* items, int64_t i, int64_t j) {
  return i != j && items[i] == items[j];
}

}  // namespace cairn::kernels

// Loss and metrics over a whole data set, exactly: every example once.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "worker/data/dataset.h"
#include "worker/nn/metrics.h"
#include "worker/nn/replica.h"

namespace cairn::worker {

// One thread. `dataset` and `replica` must outlive it.
class Evaluator {
 public:
  Evaluator(const data::Dataset& dataset, nn::Replica& replica, absl::Span<const nn::MetricSpec> metrics);

  // `parameters` in the model's flat order. `stop` is asked between batches: CANCELLED when it says yes.
  absl::StatusOr<nn::MetricValues> Run(absl::Span<const float> parameters, absl::FunctionRef<bool()> stop);

 private:
  // The `count` examples from `first` on, in the buffers.
  nn::BatchView Read(int64_t first, int64_t count);

  const data::Dataset& dataset_;
  nn::Replica& replica_;
  nn::MetricSet metrics_;
  AlignedBuffer inputs_;        // [batch, example_shape]
  AlignedBuffer targets_;       // [batch, num_targets]
  std::vector<float> weights_;  // [batch]
};

}  // namespace cairn::worker

// Loss and accuracy over a whole data set, exactly: every example once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "kernels/ops.h"
#include "worker/data/dataset.h"
#include "worker/nn/replica.h"

namespace cairn::worker {

// One thread. `dataset` and `replica` must outlive it.
class Evaluator {
 public:
  Evaluator(const data::Dataset& dataset, nn::Replica& replica);

  // `parameters` in the model's flat order. `stop` is asked between batches: CANCELLED when it says yes.
  absl::StatusOr<kernels::LossSums> Run(absl::Span<const float> parameters, absl::FunctionRef<bool()> stop);

 private:
  const data::Dataset& dataset_;
  nn::Replica& replica_;
  AlignedBuffer inputs_;         // [batch, example_shape]
  std::vector<int32_t> labels_;  // [batch]
};

}  // namespace cairn::worker

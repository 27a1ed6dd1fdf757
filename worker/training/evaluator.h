// Computes the loss and the metrics over a whole data set, in which every example counts exactly once.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "data/dataset.h"
#include "data/input_rows.h"
#include "data/length_buckets.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/replica/replica.h"

namespace cairn::worker {

// One thread. `dataset`, `model` and `replica` (which computes `model`) must outlive the evaluator.
class Evaluator {
 public:
  // `buckets` of the data set must outlive the evaluator too: examples are then evaluated from short to long, in the
  // forms of their buckets. Null: whole.
  Evaluator(const data::Dataset& dataset, const nn::Model& model, nn::Replica& replica,
            absl::Span<const nn::MetricSpec> metrics, const data::LengthBuckets* buckets = nullptr);

  // `parameters` in the model's flat order. `stop` is called between batches; Run() returns CANCELLED if
  // `stop` returns true. INVALID_ARGUMENT naming the cause (finite.h) if the loss is not finite.
  absl::StatusOr<nn::MetricValues> Run(absl::Span<const float> parameters, absl::FunctionRef<bool()> stop);

 private:
  // The examples of the batch that begins with `first`: of one bucket.
  absl::Span<const uint32_t> BatchFrom(size_t first);
  // Reads examples into the buffers.
  nn::BatchView Read(absl::Span<const uint32_t> examples);
  // OK if `loss`, the sum of the losses of `batch`, is finite.
  absl::Status CheckLoss(double loss, absl::Span<const float> parameters, const nn::BatchView& batch,
                         absl::Span<const uint32_t> examples) const;

  const data::Dataset& dataset_;
  const nn::Model& model_;
  nn::Replica& replica_;
  nn::MetricSet metrics_;
  const data::LengthBuckets* const buckets_;
  std::vector<uint32_t> order_;  // with buckets: of all examples
  std::vector<uint32_t> batch_;  // without: the examples of a batch
  data::InputRows inputs_;       // [batch, input_specs()]
  AlignedBuffer targets_;        // [batch, num_targets]
  std::vector<float> weights_;   // [batch, weights_per_example]
};

}  // namespace cairn::worker

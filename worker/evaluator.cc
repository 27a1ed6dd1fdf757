#include "worker/evaluator.h"

#include <algorithm>

#include "common/core/status.h"

namespace cairn::worker {
namespace {

constexpr int64_t kBatch = 256;

}  // namespace

Evaluator::Evaluator(const data::Dataset& dataset, nn::Replica& replica)
    : dataset_(dataset),
      replica_(replica),
      inputs_(kBatch * dataset.example_shape().num_elements()),
      labels_(static_cast<size_t>(kBatch)) {}

absl::StatusOr<kernels::LossSums> Evaluator::Run(absl::Span<const float> parameters,
                                                 absl::FunctionRef<bool()> stop) {
  const auto elements = static_cast<size_t>(dataset_.example_shape().num_elements());
  kernels::LossSums total;
  for (int64_t first = 0; first < dataset_.size(); first += kBatch) {
    if (stop()) return absl::CancelledError("stopped");
    const auto count = static_cast<size_t>(std::min(kBatch, dataset_.size() - first));
    for (size_t i = 0; i < count; ++i) {
      labels_[i] =
          dataset_.Read(first + static_cast<int64_t>(i), inputs_.span().subspan(i * elements, elements));
    }
    const nn::BatchView batch = {.examples = static_cast<int64_t>(count),
                                 .inputs = inputs_.span().subspan(0, count * elements),
                                 .labels = absl::MakeConstSpan(labels_).subspan(0, count)};
    CAIRN_ASSIGN_OR_RETURN(const kernels::LossSums sums, replica_.Evaluate(parameters, batch));
    total.loss += sums.loss;
    total.correct += sums.correct;
    total.examples += sums.examples;
  }
  return total;
}

}  // namespace cairn::worker

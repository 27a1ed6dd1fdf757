#include "worker/training/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/model/finite.h"

namespace cairn::worker {
namespace {

constexpr int64_t kBatch = 256;

}  // namespace

Evaluator::Evaluator(const data::Dataset& dataset, const nn::Model& model, nn::Replica& replica,
                     absl::Span<const nn::MetricSpec> metrics, const data::LengthBuckets* buckets)
    : dataset_(dataset),
      model_(model),
      replica_(replica),
      metrics_(metrics),
      buckets_(buckets),
      inputs_(dataset.input_specs(), kBatch),
      targets_(kBatch * dataset.num_targets()),
      weights_(static_cast<size_t>(kBatch * dataset.weights_per_example())) {
  if (buckets == nullptr) return;
  order_.resize(static_cast<size_t>(dataset.size()));
  std::iota(order_.begin(), order_.end(), 0u);
  absl::c_stable_sort(
      order_, [buckets](uint32_t a, uint32_t b) { return buckets->bucket_of[a] < buckets->bucket_of[b]; });
}

absl::StatusOr<nn::MetricValues> Evaluator::Run(absl::Span<const float> parameters,
                                                absl::FunctionRef<bool()> stop) {
  metrics_.Reset();
  for (size_t first = 0; first < static_cast<size_t>(dataset_.size());) {
    if (stop()) return absl::CancelledError("stopped");
    const absl::Span<const uint32_t> examples = BatchFrom(first);
    const nn::BatchView batch = Read(examples);
    CAIRN_RETURN_IF_ERROR(dataset_.status());
    CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, replica_.Evaluate(parameters, batch));
    CAIRN_RETURN_IF_ERROR(CheckLoss(result.sums.loss, parameters, batch, examples));
    metrics_.Update(batch, result);
    first += examples.size();
  }
  return metrics_.Values();
}

absl::Span<const uint32_t> Evaluator::BatchFrom(size_t first) {
  if (buckets_ == nullptr) {
    batch_.resize(static_cast<size_t>(std::min(kBatch, dataset_.size() - static_cast<int64_t>(first))));
    std::iota(batch_.begin(), batch_.end(), static_cast<uint32_t>(first));
    return batch_;
  }
  const absl::Span<const uint32_t> batch =
      absl::MakeConstSpan(order_).subspan(first, static_cast<size_t>(kBatch));
  const auto other = absl::c_find_if(
      batch, [&](uint32_t example) { return buckets_->bucket_of[example] != buckets_->bucket_of[batch[0]]; });
  return batch.first(static_cast<size_t>(other - batch.begin()));
}

absl::Status Evaluator::CheckLoss(double loss, absl::Span<const float> parameters, const nn::BatchView& batch,
                                  absl::Span<const uint32_t> examples) const {
  if (std::isfinite(loss)) return absl::OkStatus();
  const std::string data = dataset_.inputs_name();
  return absl::InvalidArgumentError(absl::StrCat("the loss is ", loss, " in the evaluation of ", data, ": ",
                                                 Explain({.model = model_,
                                                          .parameters = parameters,
                                                          .batch = batch,
                                                          .rows = examples,
                                                          .data = data,
                                                          .layer = ""})));
}

nn::BatchView Evaluator::Read(absl::Span<const uint32_t> examples) {
  auto targets = static_cast<size_t>(dataset_.num_targets());
  auto weights = static_cast<size_t>(dataset_.weights_per_example());
  for (size_t i = 0; i < examples.size(); ++i) {
    dataset_.Read(examples[i], inputs_.Row(static_cast<int64_t>(i)),
                  targets_.span().subspan(i * targets, targets));
    absl::c_copy(dataset_.WeightsOf(examples[i]),
                 weights_.begin() + static_cast<std::ptrdiff_t>(i * weights));
  }
  const auto count = static_cast<int64_t>(examples.size());
  if (buckets_ != nullptr) {
    const data::BucketForm& form = buckets_->forms[buckets_->bucket_of[examples[0]]];
    data::Cut(form, count,
              {.inputs = inputs_,
               .targets = targets_.span().first(examples.size() * targets),
               .weights = absl::MakeSpan(weights_).first(examples.size() * weights)});
    targets = static_cast<size_t>(form.num_targets());
    weights = static_cast<size_t>(form.num_weights());
  }
  return {.examples = count,
          .inputs = inputs_.First(count),
          .targets = targets_.span().first(examples.size() * targets),
          .weights = absl::MakeConstSpan(weights_).first(examples.size() * weights)};
}

}  // namespace cairn::worker

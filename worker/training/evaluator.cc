#include "worker/training/evaluator.h"

#include <algorithm>
#include <cmath>
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
                     absl::Span<const nn::MetricSpec> metrics)
    : dataset_(dataset),
      model_(model),
      replica_(replica),
      metrics_(metrics),
      inputs_(dataset.input_specs(), kBatch),
      targets_(kBatch * dataset.num_targets()),
      weights_(static_cast<size_t>(kBatch * dataset.weights_per_example())) {}

absl::StatusOr<nn::MetricValues> Evaluator::Run(absl::Span<const float> parameters,
                                                absl::FunctionRef<bool()> stop) {
  metrics_.Reset();
  for (int64_t first = 0; first < dataset_.size(); first += kBatch) {
    if (stop()) return absl::CancelledError("stopped");
    const nn::BatchView batch = Read(first, std::min(kBatch, dataset_.size() - first));
    CAIRN_RETURN_IF_ERROR(dataset_.status());
    CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, replica_.Evaluate(parameters, batch));
    CAIRN_RETURN_IF_ERROR(CheckLoss(result.sums.loss, parameters, batch, first));
    metrics_.Update(batch, result);
  }
  return metrics_.Values();
}

absl::Status Evaluator::CheckLoss(double loss, absl::Span<const float> parameters, const nn::BatchView& batch,
                                  int64_t first) const {
  if (std::isfinite(loss)) return absl::OkStatus();
  std::vector<uint32_t> rows(static_cast<size_t>(batch.examples));
  std::iota(rows.begin(), rows.end(), static_cast<uint32_t>(first));
  const std::string data = dataset_.inputs_name();
  return absl::InvalidArgumentError(absl::StrCat("the loss is ", loss, " in the evaluation of ", data, ": ",
                                                 Explain({.model = model_,
                                                          .parameters = parameters,
                                                          .batch = batch,
                                                          .rows = rows,
                                                          .data = data,
                                                          .layer = ""})));
}

nn::BatchView Evaluator::Read(int64_t first, int64_t count) {
  const auto targets = static_cast<size_t>(dataset_.num_targets());
  const auto examples = static_cast<size_t>(count);
  const auto weights = static_cast<size_t>(dataset_.weights_per_example());
  for (size_t i = 0; i < examples; ++i) {
    const auto row = static_cast<int64_t>(i);
    dataset_.Read(first + row, inputs_.Row(row), targets_.span().subspan(i * targets, targets));
    absl::c_copy(dataset_.WeightsOf(first + row), weights_.begin() + row * dataset_.weights_per_example());
  }
  return {.examples = count,
          .inputs = inputs_.First(count),
          .targets = targets_.span().subspan(0, examples * targets),
          .weights = absl::MakeConstSpan(weights_).subspan(0, examples * weights)};
}

}  // namespace cairn::worker

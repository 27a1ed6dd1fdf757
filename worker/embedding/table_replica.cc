#include "worker/embedding/table_replica.h"

#include "common/core/status.h"

namespace cairn::worker {

absl::Status TableReplica::Begin(const nn::BatchView& batch) {
  if (std::exchange(fetched_, false) && next_.IsOf(batch)) {
    std::swap(current_, next_);
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(current_.Begin(batch));
  return rows_.ReadRows(current_.rows());
}

void TableReplica::Count() {
  metrics_->lookups.Add(current_.num_ids());
  for (const client::RowValues& of_table : current_.rows()) {
    metrics_->distinct_lookups.Add(static_cast<int64_t>(of_table.keys.size()));
  }
}

absl::StatusOr<nn::BatchResult> TableReplica::ForwardBackward(
    absl::Span<const float> parameters, const nn::BatchView& batch, absl::Span<float> gradients,
    absl::FunctionRef<void(int variable)> on_gradient) {
  CAIRN_RETURN_IF_ERROR(Begin(batch));
  if (metrics_ != nullptr) Count();
  CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result,
                         without_tables_.ForwardBackward(parameters, current_.View(/*with_gradients=*/true),
                                                         gradients, [&](int gradient) {
                                                           if (gradient >= 0)
                                                             on_gradient(gradient);  // others are of inputs
                                                         }));
  if (batch.examples > 0) CAIRN_RETURN_IF_ERROR(rows_.PushRows(current_.Gradients()));
  return result;
}

absl::Status TableReplica::Fetch(const nn::BatchView& next) {
  CAIRN_RETURN_IF_ERROR(next_.Begin(next));
  CAIRN_RETURN_IF_ERROR(rows_.WantRows(next_.rows()));
  fetched_ = true;
  return absl::OkStatus();
}

absl::StatusOr<nn::BatchResult> TableReplica::Evaluate(absl::Span<const float> parameters,
                                                       const nn::BatchView& batch) {
  CAIRN_RETURN_IF_ERROR(evaluated_.Begin(batch));
  CAIRN_RETURN_IF_ERROR(rows_.ReadRows(evaluated_.rows()));
  return without_tables_.Evaluate(parameters, evaluated_.View(/*with_gradients=*/false));
}

}  // namespace cairn::worker

#include "worker/embedding/table_replica.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::worker {

absl::Status TableReplica::Begin(const nn::BatchView& batch) {
  if (ahead_.empty() || !ahead_.front().IsOf(batch)) {
    CAIRN_RETURN_IF_ERROR(current_.Begin(batch));
    return rows_.ReadRows(current_.rows());
  }
  spare_.push_back(std::exchange(current_, std::move(ahead_.front())));
  ahead_.pop_front();
  return options_.staleness > 0 ? rows_.FinishRead() : absl::OkStatus();
}

void TableReplica::Count() {
  options_.counters->ids.Add(current_.num_ids());
  for (const client::RowValues& of_table : current_.rows()) {
    options_.counters->distinct.Add(static_cast<int64_t>(of_table.keys.size()));
  }
}

absl::StatusOr<nn::BatchResult> TableReplica::ForwardBackward(
    absl::Span<const float> parameters, const nn::BatchView& batch, absl::Span<float> gradients,
    absl::FunctionRef<void(int variable)> on_gradient) {
  CAIRN_RETURN_IF_ERROR(Begin(batch));
  if (options_.counters != nullptr) Count();
  const bool pools = without_tables_.pools_rows();
  CAIRN_ASSIGN_OR_RETURN(
      const nn::BatchResult result,
      without_tables_.ForwardBackward(parameters,
                                      pools ? current_.ViewOfBags() : current_.View(/*with_gradients=*/true),
                                      gradients, [&](int gradient) {
                                        if (gradient >= 0) on_gradient(gradient);  // others are of inputs
                                      }));
  if (batch.examples > 0) {
    CAIRN_RETURN_IF_ERROR(
        rows_.PushRows(pools ? current_.Gradients(result.row_gradients) : current_.Gradients()));
  }
  return result;
}

absl::StatusOr<BatchLookup> TableReplica::BeginAhead(const nn::BatchView& batch) {
  if (spare_.empty()) spare_.emplace_back(plan_);
  CAIRN_RETURN_IF_ERROR(spare_.back().Begin(batch));
  BatchLookup lookup = std::move(spare_.back());
  spare_.pop_back();
  return lookup;
}

absl::Status TableReplica::Fetch(const nn::BatchView& next) {
  Forget();
  CAIRN_ASSIGN_OR_RETURN(BatchLookup lookup, BeginAhead(next));
  CAIRN_RETURN_IF_ERROR(rows_.WantRows(lookup.rows()));
  ahead_.push_back(std::move(lookup));
  return absl::OkStatus();
}

absl::Status TableReplica::Read(const nn::BatchView& batch) {
  CAIRN_ASSIGN_OR_RETURN(BatchLookup lookup, BeginAhead(batch));
  CAIRN_RETURN_IF_ERROR(rows_.BeginRead(lookup.rows()));
  ahead_.push_back(std::move(lookup));
  return absl::OkStatus();
}

void TableReplica::Forget() {
  if (options_.staleness > 0) rows_.DropReads();
  for (; !ahead_.empty(); ahead_.pop_front()) spare_.push_back(std::move(ahead_.front()));
}

absl::StatusOr<nn::BatchResult> TableReplica::Evaluate(absl::Span<const float> parameters,
                                                       const nn::BatchView& batch) {
  CAIRN_RETURN_IF_ERROR(evaluated_.Begin(batch));
  CAIRN_RETURN_IF_ERROR(rows_.ReadRows(evaluated_.rows()));
  return without_tables_.Evaluate(parameters, without_tables_.pools_rows()
                                                  ? evaluated_.ViewOfBags()
                                                  : evaluated_.View(/*with_gradients=*/false));
}

}  // namespace cairn::worker

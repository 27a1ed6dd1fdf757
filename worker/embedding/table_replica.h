// A replica of a model whose embedding tables are on the servers. It reads the rows that a batch looks up, computes on
// the model without tables, and pushes the rows' gradients with the step in progress.
//
// To its users it is a replica of the described model, except that its variables are those of the model without tables.
// If Fetch() has announced the batch, its rows arrive with the answer to the step before, of the same version as the
// variables: the step is one round trip. Otherwise the replica reads the rows when the batch begins.
//
// One thread, the one that makes the steps.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/rows/row_exchange.h"
#include "nn/replica/replica.h"
#include "worker/embedding/batch_lookup.h"
#include "worker/embedding/next_batch_fetcher.h"
#include "worker/embedding/table_plan.h"
#include "worker/report/metrics.h"

namespace cairn::worker {

class TableReplica final : public nn::Replica, public NextBatchFetcher {
 public:
  // `without_tables`: a replica of plan.model.model. `metrics`, which may be null, counts lookups. All arguments must
  // outlive the object.
  TableReplica(const TablePlan& plan, nn::Replica& without_tables, client::RowExchange& rows,
               WorkerMetrics* metrics = nullptr)
      : without_tables_(without_tables),
        rows_(rows),
        metrics_(metrics),
        current_(plan),
        next_(plan),
        evaluated_(plan) {}

  // Also the errors of client::RowExchange.
  absl::StatusOr<nn::BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                                  const nn::BatchView& batch, absl::Span<float> gradients,
                                                  absl::FunctionRef<void(int variable)> on_gradient) override;
  absl::StatusOr<nn::BatchResult> Evaluate(absl::Span<const float> parameters,
                                           const nn::BatchView& batch) override;

  absl::Status Fetch(const nn::BatchView& next) override;
  void Forget() override { fetched_ = false; }

  absl::Status Pin(absl::Span<const float> host) override { return without_tables_.Pin(host); }
  void Unpin() override { without_tables_.Unpin(); }
  bool pins() const override { return without_tables_.pins(); }
  std::string FirstNonFiniteLayer() override { return without_tables_.FirstNonFiniteLayer(); }

 private:
  // Begins with a batch of training, whose rows are then in current_.
  absl::Status Begin(const nn::BatchView& batch);
  // Counts the lookups of current_.
  void Count();

  nn::Replica& without_tables_;
  client::RowExchange& rows_;
  WorkerMetrics* const metrics_;
  BatchLookup current_, next_, evaluated_;
  bool fetched_ = false;  // next_ has the rows of a batch that was announced by Fetch()
};

}  // namespace cairn::worker

// A replica of a model whose embedding tables are on the servers. It reads the rows that a batch looks up, computes on
// the model without tables, and pushes the rows' gradients with the step in progress.
//
// To its users it is a replica of the described model, except that its variables are those of the model without tables.
// If Fetch() has announced the batch, its rows arrive with the answer to the step before, of the same version as the
// variables: the step is one round trip. With a staleness above 0, Read() reads the rows of later batches while the
// current one is trained, so they lack the updates that are made meanwhile: at most as many as the staleness.
// Otherwise the replica reads the rows when the batch begins.
//
// One thread, the one that makes the steps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/rows/row_exchange.h"
#include "nn/replica/replica.h"
#include "worker/embedding/batch_lookup.h"
#include "worker/embedding/lookup_counters.h"
#include "worker/embedding/next_batch_fetcher.h"
#include "worker/embedding/table_plan.h"

namespace cairn::worker {

class TableReplica final : public nn::Replica, public NextBatchFetcher {
 public:
  struct Options {
    int staleness = 0;                   // how many updates the rows may lack
    LookupCounters* counters = nullptr;  // may be null
  };
  // `without_tables`: a replica of plan.model.model. All references must outlive the object.
  TableReplica(const TablePlan& plan, nn::Replica& without_tables, client::RowExchange& rows,
               const Options& options)
      : plan_(plan),
        without_tables_(without_tables),
        rows_(rows),
        options_(options),
        current_(plan),
        evaluated_(plan) {}
  ~TableReplica() override { Forget(); }

  // Also the errors of client::RowExchange.
  absl::StatusOr<nn::BatchResult> ForwardBackward(absl::Span<const float> parameters,
                                                  const nn::BatchView& batch, absl::Span<float> gradients,
                                                  absl::FunctionRef<void(int variable)> on_gradient) override;
  absl::StatusOr<nn::BatchResult> Evaluate(absl::Span<const float> parameters,
                                           const nn::BatchView& batch) override;

  absl::Status Fetch(const nn::BatchView& next) override;
  int reads_ahead() const override { return options_.staleness; }
  absl::Status Read(const nn::BatchView& batch) override;
  void Forget() override;

  absl::Status Pin(absl::Span<const float> host) override { return without_tables_.Pin(host); }
  void Unpin() override { without_tables_.Unpin(); }
  bool pins() const override { return without_tables_.pins(); }
  std::string FirstNonFiniteLayer() override { return without_tables_.FirstNonFiniteLayer(); }

 private:
  // Begins with a batch of training, whose rows are then in current_.
  absl::Status Begin(const nn::BatchView& batch);
  // Counts the lookups of current_.
  void Count();
  // Begins a lookup of a later batch.
  absl::StatusOr<BatchLookup> BeginAhead(const nn::BatchView& batch);

  const TablePlan& plan_;
  nn::Replica& without_tables_;
  client::RowExchange& rows_;
  const Options options_;
  BatchLookup current_, evaluated_;
  // The lookups of the next batches: the one of Fetch(), or those of Read(), whose rows are being read.
  std::deque<BatchLookup> ahead_;
  std::vector<BatchLookup> spare_;  // whose memory is used again
};

}  // namespace cairn::worker

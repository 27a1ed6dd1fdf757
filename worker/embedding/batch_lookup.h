// The rows of embedding tables that one batch looks up: which rows to read, the inputs that they make for the rest of
// the model, and the gradients of the rows.
//
//   Begin(batch) ─► rows(): to be read ─► View() ─► forward and backward ─► Gradients(): to be pushed
//                                      └─► ViewOfBags(), for a replica that pools rows ─► Gradients(of the replica)
//
// A row that the batch looks up several times is read once, and its gradients are added up in the order of the batch.
// Owned by a TableReplica; one thread. Its memory stays allocated between batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/rows/row_exchange.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/store/unique_keys.h"
#include "kernels/bag_pool.h"
#include "kernels/cpu/pool_bags.h"
#include "nn/batch.h"
#include "nn/replace_embeddings.h"
#include "nn/row_bags.h"
#include "worker/embedding/table_plan.h"

namespace cairn::worker {

class BatchLookup {
 public:
  // `plan` must outlive the object.
  explicit BatchLookup(const TablePlan& plan);

  // Begins with another batch, of the described model's inputs, which must outlive View() and Gradients().
  // INVALID_ARGUMENT, naming the layer, for an id outside of its table, and for ids that lack weights.
  absl::Status Begin(const nn::BatchView& batch);
  // Whether the last Begin() was with this batch: the same examples in the same memory, with the same seed.
  bool IsOf(const nn::BatchView& batch) const;
  // [table] The rows of the batch, and where their values belong.
  absl::Span<const client::RowValues> rows() const { return rows_; }
  // The number of ids that the batch looks up, repeated ones included.
  int64_t num_ids() const;
  // Those of one table.
  int64_t num_ids(size_t table) const { return static_cast<int64_t>(tables_[table].ids.size()); }
  // The batch of the model without tables, made from the values in rows(). `with_gradients`: it has input_gradients.
  nn::BatchView View(bool with_gradients);
  // [table] The gradients of the rows, from the input_gradients of the last View().
  absl::Span<const client::RowGradients> Gradients();

  // The batch of the model without tables, with row_bags, which are valid until the next Begin().
  nn::BatchView ViewOfBags();
  // [table] The gradients of the rows that the replica has added up, which must stay valid as long as the result.
  absl::Span<const client::RowGradients> Gradients(absl::Span<const absl::Span<const float>> of_tables);

 private:
  struct TableRows {
    std::vector<int64_t> ids;  // of the batch, lookup by lookup
    size_t same_as = 0;        // the first table with the same ids in every batch, which merges them for both
    embedding::UniqueKeys unique;
    bool pooled = false;              // a lookup has a combiner
    int32_t begun = 0;                // the rows whose gradients have a term, unless `pooled`
    AlignedBuffer values, gradients;  // [key][width], with room to grow
  };
  // A lookup's part of the batch.
  struct Lookup {
    kernels::Combiner combiner = kernels::Combiner::kNone;  // how the rows of an example become one
    std::vector<int32_t> splits;                            // [example + 1] of its ids, with a combiner
    size_t first = 0, count = 0;                            // its ids in those of its table
    AlignedBuffer input, gradient;                          // of the model without tables
  };

  // Appends the batch's ids for a lookup to those of its table.
  absl::Status AddIds(size_t lookup);
  // The distinct ids of a table.
  const embedding::UniqueKeys& UniqueOf(size_t table) const { return tables_[tables_[table].same_as].unique; }
  // INVALID_ARGUMENT if an example has another number of weights than of the ragged `ids`.
  absl::Status CheckWeights(const nn::TableLookup& lookup, const TensorView& ids) const;
  // [id of the lookup] The index of the id's row among the distinct rows of its table.
  absl::Span<const int32_t> PositionsOf(size_t lookup) const;
  // [id of the lookup] The weights; empty without weights.
  absl::Span<const float> WeightsOf(size_t lookup) const;
  kernels::cpu::HostBags BagsOf(size_t lookup) const;
  kernels::cpu::HostRows RowsOf(size_t lookup) const;
  // Writes the input of the model without tables.
  void Pool(size_t lookup, absl::Span<float> output) const;
  // Adds the gradient with respect to that input to the gradients of the rows.
  void AddGradients(size_t lookup);

  const TablePlan* plan_;  // a pointer, so that lookups can be swapped
  nn::BatchView batch_;
  std::vector<TableRows> tables_;
  std::vector<Lookup> lookups_;
  std::vector<client::RowValues> rows_;
  std::vector<client::RowGradients> gradients_;
  nn::RowBags bags_;
};

}  // namespace cairn::worker

// The table of a job's variables: one flat array of floats, updated as a whole. Each push brings all of its
// elements.
//
// Joins the values by version (optim::VariableStore) with the push's elements (Accumulator) and speculative
// updates. Readers use the store directly: see Shard::store(). Threads as for Table; store() and speculative()
// have their own rules.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/system/thread_pool.h"
#include "common/trace/trace.h"
#include "optim/store/variable_store.h"
#include "ps/table/gradient_view.h"
#include "ps/table/speculative_update.h"
#include "ps/table/table.h"

namespace cairn::ps {

class DenseTable final : public Table {
 public:
  struct Options {
    int64_t initial_version = 0;
    // As in optim::VariableStore.
    int64_t memory_limit = std::numeric_limits<int64_t>::max();
    ThreadPool* thread_pool = nullptr;
    bool speculative_updates = false;  // unless there are fewer than net::kMinSpeculativeUpdate elements
    TraceRecorder* trace = nullptr;    // as in SpeculativeUpdate
  };
  // `optimizer` outlives the table; null: nothing is trained.
  DenseTable(std::vector<net::Slice> slices, const optim::Optimizer* optimizer, const Options& options);

  optim::VariableStore& store() { return store_; }
  const optim::VariableStore& store() const { return store_; }
  // Null: no update is speculative.
  SpeculativeUpdate* speculative() { return speculative_.get(); }
  // The elements that a push brought to this table.
  static GradientView ViewOf(const PushData& data) {
    return data.empty() ? GradientView() : GradientView::Of(data[0]);
  }

  std::unique_ptr<TablePush> BeginPush(const PushRequest& request) override;
  // INVALID_ARGUMENT: variables are read by ranges of elements.
  absl::StatusOr<TableRows> ReadRows(absl::Span<const int64_t> ids) const override;
  // The mean in a new buffer, or the gradient itself if it is the only one.
  absl::StatusOr<TableMean> Mean(const TableUpdate& update) override;
  absl::StatusOr<std::vector<optim::SliceSquares>> Measure(optim::Norms norms,
                                                           const TableUpdate& update) override;
  absl::Status Apply(const TableUpdate& update) override;
  // The values, then all slots.
  absl::StatusOr<TableState> Save(bool beyond_budget) override;
  absl::Status CheckState(const TableState& state) const override;
  void Restore(int64_t version, TableState state) override;
  absl::string_view name() const override { return ""; }
  void FillStatus(v1::TableStatus&) const override {}

 private:
  // The gradients of an update, borrowed from it.
  absl::StatusOr<std::vector<optim::ContributedGradient>> GradientsOf(const TableUpdate& update) const;
  static optim::VariableStore::Mean MeanOf(const TableUpdate& update,
                                           absl::Span<const optim::ContributedGradient> gradients);

  optim::VariableStore store_;
  const std::unique_ptr<SpeculativeUpdate> speculative_;
};

}  // namespace cairn::ps

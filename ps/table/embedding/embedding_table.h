// A table of rows by id: the embeddings of a model. A row begins to exist when an update has a gradient for it; until
// then, it has the first values that the initializer gives it, and takes no memory.
//
// Bits: a row depends on its own gradients alone. It is the same on any number of servers, stores and threads.
//
// Threads: as Table. A lock protects the rows: reads of rows share it, updates hold it alone. FillStatus() does not
// take it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"
#include "common/system/thread_pool.h"
#include "embedding/initializers/row_initializer.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/memory_source.h"
#include "embedding/store/row_store.h"
#include "optim/store/memory_budget.h"
#include "ps/table/embedding/found_rows.h"
#include "ps/table/embedding/hot_keys.h"
#include "ps/table/embedding/row_mean.h"
#include "ps/table/table.h"

namespace cairn::ps {

class EmbeddingTable final : public Table {
 public:
  struct Options {
    std::string name;
    int64_t vocabulary_size = 0;  // ids are in [0, vocabulary_size); 0: any
    int dim = 1;
    std::shared_ptr<const embedding::RowOptimizer> optimizer;
    // The learning rate that the chief sets for the job is also that of the rows. Otherwise the chief's change of the
    // rate from `job_rate` multiplies that of the rows.
    bool follows_job = true;
    float job_rate = 0;  // that the job begins with; 0: changes have no effect on the rows
    embedding::RowInitializer initializer;
    int64_t version = 0;                // where the job begins
    int server = 0, servers = 1;        // the table has the buckets of this server
    ThreadPool* thread_pool = nullptr;  // null: one thread
  };
  EmbeddingTable(Options options, std::shared_ptr<optim::MemoryBudget> budget);
  ~EmbeddingTable() override { budget_->Give(workspace_bytes_); }

  std::unique_ptr<TablePush> BeginPush(const PushRequest& request) override;
  // RESOURCE_EXHAUSTED also if the answer would take the memory of the next update's mean from a dynamic table.
  absl::StatusOr<TableRows> ReadRows(absl::Span<const int64_t> ids) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<TableMean> Mean(const TableUpdate& update) override;
  // No norm includes rows.
  absl::StatusOr<std::vector<optim::SliceSquares>> Measure(optim::Norms norms,
                                                           const TableUpdate& update) override;
  // INVALID_ARGUMENT, naming the table and the id, if a gradient is not finite: nothing of this table is updated then.
  // INTERNAL, naming the table, if there is no memory for new rows.
  absl::Status Apply(const TableUpdate& update) override ABSL_LOCKS_EXCLUDED(mutex_);
  // In the form of embedding/store/table_state.h, in whose order CheckState() requires the rows.
  absl::StatusOr<TableState> Save(bool beyond_budget) override;
  absl::Status CheckState(const TableState& state) const override;
  void Restore(int64_t version, TableState state) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::string_view name() const override { return options_.name; }
  void FillStatus(v1::TableStatus& status) const override ABSL_LOCKS_EXCLUDED(hot_mutex_);

  // INVALID_ARGUMENT, naming table and id, for an id outside of the vocabulary or of another server.
  absl::Status CheckIds(absl::Span<const int64_t> ids) const;

 private:
  class Memory final : public embedding::MemorySource {
   public:
    // `found` is dropped before memory is refused.
    Memory(std::shared_ptr<optim::MemoryBudget> budget, std::string table, FoundRows& found)
        : budget_(std::move(budget)), what_(std::move(table)), found_(found) {}
    absl::Status Take(int64_t bytes) override;
    void Give(int64_t bytes) override { budget_->Give(bytes); }
    // Without a limit, nothing is refused.
    void SetLimited(bool limited) { limited_ = limited; }

   private:
    const std::shared_ptr<optim::MemoryBudget> budget_;
    const std::string what_;
    FoundRows& found_;
    std::atomic<bool> limited_{true};
  };
  // The rows of an update that are searched for in one store.
  struct Part {
    std::vector<int64_t> ids{};
    std::vector<size_t> places{};  // of the ids, among those of the update
    std::vector<float*> rows{};
    std::vector<int32_t> inserted{};
    absl::Status status{};
  };

  int64_t row_floats() const { return options_.dim + optimizer().slots(); }
  const embedding::RowOptimizer& optimizer() const { return *options_.optimizer; }
  size_t StoreOf(int64_t id) const;
  // The mean of gradients, which are counted.
  absl::StatusOr<TableMean> ComputeMean(const TableUpdate& update) ABSL_LOCKS_EXCLUDED(hot_mutex_);
  // Sets update_rows_ to the rows of these ids. Creates those that do not exist, with their initial values. INTERNAL,
  // naming the table, if there is no memory for them.
  absl::Status FindRows(absl::Span<const int64_t> ids) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adjusts the budget to the memory of the workspace.
  void CountWorkspace();
  // Makes empty stores.
  void MakeStores() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The number of rows of a state that come before those of this store.
  int64_t RowsBefore(size_t store, const TableState& state, int64_t rows) const;
  // Adds the rows [begin, end) of a state to their store.
  absl::Status AddRows(size_t store, const TableState& state, int64_t begin, int64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes how many rows there are, and their memory.
  void NoteSize() ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  float LearningRate(const TableUpdate& update) const;
  void FindPart(size_t store) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls body(i) for each store, on the threads of the pool; on this thread if the work is on few rows.
  void ForEachStore(size_t rows, absl::FunctionRef<void(size_t)> body) const;
  // A read of rows: their ids, and of each store the places of its ids.
  struct RowRead {
    absl::Span<const int64_t> ids{};
    std::vector<std::vector<size_t>> places{};  // [store]
    std::vector<float*> rows{};                 // [place] null: it does not exist
    absl::Span<float> elements{};               // [place][element]
  };
  // Finds the rows of one store, and copies their elements.
  void ReadPart(size_t store, RowRead& read) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const embedding::BucketRange buckets_;
  const std::vector<int> store_ends_;  // [store] the bucket after its last one
  const std::shared_ptr<optim::MemoryBudget> budget_;
  mutable FoundRows found_;
  Memory memory_;
  RowMeans means_;                      // the executor's thread
  std::vector<Part> parts_;             // [store]; the same thread
  std::vector<float*> update_rows_;     // the same thread
  int64_t workspace_bytes_ = 0;         // of means_, parts_ and update_rows_, in the budget
  std::atomic<int64_t> mean_bytes_{0};  // of the last update

  mutable SharedMutex mutex_;
  std::vector<std::unique_ptr<embedding::RowStore>> stores_
      ABSL_GUARDED_BY(mutex_);  // each has its range of buckets
  int64_t version_ ABSL_GUARDED_BY(mutex_);
  float rate_ ABSL_GUARDED_BY(mutex_);  // of the last update; before the first, of that one

  // For the status.
  std::atomic<int64_t> rows_{0}, bytes_{0};
  mutable Counter lookups_, hits_;
  Counter gradients_, updates_, inserts_;
  mutable Mutex hot_mutex_;
  HotKeys hot_ ABSL_GUARDED_BY(hot_mutex_);
};

}  // namespace cairn::ps

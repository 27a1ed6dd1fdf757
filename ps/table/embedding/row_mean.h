// The mean of the row gradients of one update, and its form in a TableMean.
//
// The mean of a row divides by the examples of all contributors, including those that have no gradient for the row, as
// the mean of a variable does. Weights are first divided by their greatest common divisor, as in optim/apply.h. Terms
// are added in the order of the contributors, so the bits do not depend on the order of arrival or on how the rows are
// divided among servers.
//
// A TableMean has the ids as int64, and then the rows' elements in the same order. Ids are in it once, in the order in
// which the contributors name them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "embedding/store/unique_keys.h"
#include "optim/store/memory_budget.h"
#include "ps/table/table.h"

namespace cairn::ps {

// The contents of a TableMean. Borrows from it.
struct RowMean {
  absl::Span<const int64_t> ids{};
  absl::Span<const float> elements{};  // [row][element]
};

// INVALID_ARGUMENT if `mean` is not one of rows with so many elements. Null: no rows.
absl::StatusOr<RowMean> RowsOf(const TableMean& mean, int64_t row_elements);

// Computes means of one table. Its workspace stays allocated between calls; one thread.
class RowMeans {
 public:
  // A mean counts in `budget`.
  RowMeans(int64_t row_elements, std::shared_ptr<optim::MemoryBudget> budget)
      : row_elements_(row_elements), budget_(std::move(budget)) {}
  // Null if no contributor has examples. INVALID_ARGUMENT for 2^31 rows or more.
  absl::StatusOr<TableMean> Compute(absl::Span<const TableUpdate::Contribution> contributions);

  // The ids in all gradients of the last mean, as they came, and the number of distinct ones.
  absl::Span<const int64_t> ids() const { return ids_; }
  size_t distinct() const { return ids_.empty() ? 0 : unique_.keys().size(); }
  // The memory of the workspace, which `budget` does not count.
  int64_t workspace_bytes() const {
    return static_cast<int64_t>(ids_.capacity() * sizeof(int64_t)) + unique_.bytes();
  }

 private:
  const int64_t row_elements_;
  const std::shared_ptr<optim::MemoryBudget> budget_;
  std::vector<int64_t> ids_;  // of all frames
  embedding::UniqueKeys unique_;
};

}  // namespace cairn::ps

// The gradients that one push brings to an embedding table: the frames of rows as they arrived.
//
// Immutable after the push; any thread. Its memory is counted in the job's budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/net/wire/row_frame.h"
#include "optim/store/memory_budget.h"
#include "ps/table/table.h"

namespace cairn::ps {

class RowGradient final : public TableGradient {
 public:
  explicit RowGradient(std::shared_ptr<optim::MemoryBudget> budget) : budget_(std::move(budget)) {}
  ~RowGradient() override { budget_->Give(bytes_); }

  // RESOURCE_EXHAUSTED if there is no memory for the frame.
  absl::Status Add(net::ReceivedRows frame);

  // In order of arrival. An id may occur in several frames.
  absl::Span<const net::ReceivedRows> frames() const { return frames_; }
  size_t rows() const { return rows_; }

 private:
  const std::shared_ptr<optim::MemoryBudget> budget_;
  std::vector<net::ReceivedRows> frames_;
  size_t rows_ = 0;
  int64_t bytes_ = 0;  // taken from the budget
};

}  // namespace cairn::ps

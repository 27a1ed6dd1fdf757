// An optimizer's rule for the rows of a table: how one row and its slots move by the gradient of the row. The
// counterpart of optim::UpdateRule, from which it differs in that one call updates many short rows.
//
// Created once per table, constant after construction, shared by all threads. Element-wise rules use the same
// formulas, in the same order, as the rule of the same name in optim/rules: a row that is in every batch has the bits
// that the same numbers would have in a variable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "embedding/simd/row_loop.h"
#include "optim/simd/isa.h"

namespace cairn::embedding {

struct RowUpdate {
  float learning_rate = 0;
  // The number of this update of the job, from 1 on, whether or not a row takes part. Adam's correction depends on it.
  int64_t step = 1;
};

// A slot of every row of a table: state of the optimizer, with the name that it has beside variables.
struct RowSlot {
  absl::string_view name;
  int floats = 0;
};

class RowRule {
 public:
  // `slots`: in the order in which they follow the `dim` values of a row.
  RowRule(int dim, optim::Isa isa, std::vector<RowSlot> slots)
      : dim_(dim), isa_(isa), slot_list_(std::move(slots)) {
    for (const RowSlot& slot : slot_list_) slots_ += slot.floats;
  }
  virtual ~RowRule() = default;

  const std::vector<RowSlot>& slot_list() const { return slot_list_; }
  // The number of floats of all slots.
  int slots() const { return slots_; }
  // Sets the slots [slots()] of a new row.
  virtual void InitSlots(absl::Span<float> slots) const { std::fill(slots.begin(), slots.end(), 0.0f); }
  virtual void Update(const RowBatch& batch, const RowUpdate& update) const = 0;
  // Whether Read() only copies the first floats of a row.
  virtual bool ReadsStoredValues() const { return true; }
  // Copies the values of rows to `values` [rows] [dim], as they are after `at.step` updates of the job.
  virtual void Read(absl::Span<const float* const> rows, const RowUpdate& /*at*/, float* values) const {
    for (const float* row : rows) values = std::copy_n(row, dim_, values);
  }

 protected:
  int dim() const { return dim_; }
  optim::Isa isa() const { return isa_; }

 private:
  const int dim_;
  const optim::Isa isa_;
  const std::vector<RowSlot> slot_list_;
  int slots_ = 0;
};

}  // namespace cairn::embedding

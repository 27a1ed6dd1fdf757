// How a server updates the rows of a table: a rule for rows, its learning rate, and clipping.
//
// Created once per table from the chief's configuration, constant after construction, shared by all threads. It owns no
// rows: two threads may call Apply() at the same time for different rows. The counterpart for variables is
// optim::Optimizer, whose names, checks and messages it shares.
//
// A row is [dim() values, slots() floats]. A row that is not in a call never changes. The caller
//   - merges the gradients of a row before the call (a row that occurs twice in a call has an undefined result, because
//     the square of a sum is not the sum of squares),
//   - divides the sum by all examples of the round, also by those without the row, and
//   - looks for infinities and NaNs in all gradients of an update (FirstNonFiniteRow) before it applies any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "embedding/optimizers/rules/row_rule.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "optim/simd/isa.h"

namespace cairn::embedding {

// 0 is off; at most one is on.
struct RowClips {
  float clipvalue = 0;     // limits every element of the gradient to [-clipvalue, clipvalue]
  float row_clipnorm = 0;  // limits the norm of each row's gradient
};

class RowOptimizer {
 public:
  RowOptimizer(absl::string_view name, std::unique_ptr<const RowRule> rule, optim::Schedule learning_rate,
               const RowClips& clips, int dim);

  // "Adagrad", "RowWiseAdagrad".
  absl::string_view name() const { return name_; }
  int dim() const { return dim_; }
  // The number of floats after the values of a row.
  int slots() const { return rule_->slots(); }
  // The slots, in their order.
  const std::vector<RowSlot>& slot_list() const { return rule_->slot_list(); }
  // The learning rate of the update that follows `iterations` updates of the job.
  float learning_rate(int64_t iterations) const { return static_cast<float>(learning_rate_(iterations)); }

  // Sets the slots [slots()] of a new row.
  void InitSlots(absl::Span<float> slots) const { rule_->InitSlots(slots); }

  // Updates each row, with its slots, by its gradient: `gradients` [rows] [dim]. The bits of a row do not depend on the
  // other rows of the call, so that the rows of an update may be divided among threads and servers.
  void Apply(absl::Span<float* const> rows, absl::Span<const float> gradients, const RowUpdate& update) const;

  // Copies the values of rows to `values` [rows] [dim], as they are after `at.step` updates with the learning rate
  // `at.learning_rate`: for Adam with catch_up, the values after the steps that the row has skipped; otherwise the
  // stored values. Changes nothing.
  void Read(absl::Span<const float* const> rows, const RowUpdate& at, absl::Span<float> values) const;
  // Whether Read() only copies the stored values.
  bool ReadsStoredValues() const { return rule_->ReadsStoredValues(); }

 private:
  const absl::string_view name_;
  const std::unique_ptr<const RowRule> rule_;
  const optim::Schedule learning_rate_;
  const RowClips clips_;
  const int dim_;
};

inline constexpr int64_t kAllRowsFinite = -1;
// The index of the first row of `gradients` [rows] [dim] with an infinity or a NaN, or kAllRowsFinite.
int64_t FirstNonFiniteRow(absl::Span<const float> gradients, int dim, optim::Isa isa = optim::WidestIsa());

// `config` has the name (in any case) and the numbers of a Keras optimizer: SGD, Adam, Adagrad, RMSprop, Ftrl; or
// RowWiseAdagrad, which Keras lacks. A table has these numbers besides Keras': catch_up of Adam, and row_clipnorm of
// all. INVALID_ARGUMENT for an unknown name (lists the supported ones), and for a hyperparameter that is unknown, out
// of range, or switches on what a table lacks: norms over all rows (clipnorm, global_clipnorm), weight decay, moving
// averages. Results do not depend on `isa`: only tests pass it.
absl::StatusOr<std::unique_ptr<const RowOptimizer>> MakeRowOptimizer(const optim::OptimizerConfig& config,
                                                                     int dim,
                                                                     optim::Isa isa = optim::WidestIsa());

}  // namespace cairn::embedding

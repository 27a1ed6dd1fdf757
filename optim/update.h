// One update of all values of a server. If the optimizer needs norms, the update runs in stages:
// MeasureSlices() for each of Optimizer::norms(), after which the servers of a job add up their sums, and
// then UpdateSlices().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/core/constraint.h"
#include "common/core/shape.h"
#include "common/system/thread_pool.h"
#include "optim/apply.h"
#include "optim/optimizer.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// Elements [begin, end) of a server's values that are updated by one rule.
struct UpdateSlice {
  int64_t begin = 0;
  int64_t end = 0;
  std::optional<float> moving_average_momentum{};  // if set, ApplyMovingAverage() updates the slice
  // The number of elements whose squares are summed together, from `begin` on. Used if the optimizer needs
  // norms; the slice then belongs to one variable.
  int64_t band = 0;
  std::optional<float> learning_rate{};  // if set, replaces that of Update::step
  bool untouched = false;                // values and slots stay as they are; the slice has no norms
  // If set, replaces Update::optimizer, of which it is a variant (MakeVariant). Borrowed.
  const Optimizer* optimizer = nullptr;
  // The number of earlier updates that left the slice as it was: its count of updates is Update::step.t minus these.
  int64_t skipped = 0;
  // If set, applied to the new values, except to averages that replace the values at the end (CommonOptions::use_ema).
  // Borrowed.
  const Constraint* constraint = nullptr;
  // The shape of the slice, if its constraint takes norms. The slice then is rows of one variable.
  Shape shape{};

  bool takes_norms() const { return constraint != nullptr && constraint->takes_norms(); }
};

// Elements that are contiguous in memory, from `begin` to the next run or to the end.
struct ElementRun {
  int64_t begin = 0;
  const float* elements = nullptr;

  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

// A worker's gradient, parallel to all values of a server, in any number of memory blocks. Borrowed.
class ContributedGradient {
 public:
  // A gradient in one block. `examples` as in WeightedGradient.
  ContributedGradient(const float* values, int64_t examples) : whole_{0, values}, examples_(examples) {}
  // A gradient in runs with rising `begin`; the first run begins at 0. A gradient without examples may have
  // no runs.
  ContributedGradient(absl::Span<const ElementRun> runs, int64_t examples)
      : runs_(runs), examples_(examples) {}

  absl::Span<const ElementRun> runs() const {
    return runs_.empty() ? absl::MakeConstSpan(&whole_, 1) : runs_;
  }
  int64_t examples() const { return examples_; }

 private:
  absl::Span<const ElementRun> runs_;
  ElementRun whole_;
  int64_t examples_;
};

// The totals of the last MeasureSlices() over all servers. Empty before the first MeasureSlices().
struct KnownSquares {
  std::vector<Squares> of_slice{};  // [slice]: the sums over the slice's whole variable
  double all_gradients = 0;         // Squares::gradient summed over all the job's variables
};

// Borrowed for the duration of a call. Each element of `all` is in one of the `slices`, which are in ascending order.
struct Update {
  const Optimizer& optimizer;
  UpdateStep step;
  absl::Span<const ContributedGradient> gradients;
  absl::Span<const UpdateSlice> slices;
  UpdateRange all;
  const KnownSquares& known;
  float rate_divisor = 1;  // divides UpdateSlice::learning_rate; `step` is divided already
  Isa isa = WidestIsa();
  // The thread pool for the update; may be null. The sums of norms and UpdatePiece() do not use it. Any
  // number of threads gives the same bits.
  ThreadPool* thread_pool = nullptr;
};

// The contributions of the slices to the sums of `norms`: of_slice[slice][band], empty for a slice with a
// moving average, which has no norms, and 0 for an untouched one.
struct MeasuredSlices {
  int64_t non_finite = kAllFinite;  // otherwise the index in `all` of an element that is not finite
  std::vector<std::vector<Squares>> of_slice{};
};
// Computes these contributions. With kGradient, changes nothing. With kLayer, makes the update except for its
// last move: slots are updated, and all.new_values holds the directions until UpdateSlices() is called with
// the same `all`.
MeasuredSlices MeasureSlices(Norms norms, const Update& update);

// Completes the update after MeasureSlices() for each of the optimizer's norms. Returns as ApplyMean(), with
// an index in `all`.
int64_t UpdateSlices(const Update& update);

// Updates only elements [begin, end) of `all`, for an optimizer and constraints without norms. Gives the same bits as
// UpdateSlices(). Any number of threads, on disjoint elements.
int64_t UpdatePiece(const Update& update, int64_t begin, int64_t end);

// Writes elements [begin, end) of the mean of gradients in any number of memory blocks, as WriteMean() of
// whole gradients. `mean`: element 0. Any number of threads, on disjoint elements.
void WriteMean(absl::Span<const ContributedGradient> gradients, int64_t begin, int64_t end, float* mean,
               Isa isa = WidestIsa());

}  // namespace cairn::optim

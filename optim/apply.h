// One update of one range of one variable: the mean of several workers' gradients, the optimizer and the new
// values, fused block by block so that every byte of memory is touched once. Optimizers that need norms take
// further passes.
//
// Pure functions: they own nothing and lock nothing. Ranges of one variable may run on several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "optim/optimizer.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

struct WeightedGradient {
  const float* values;  // parallel to the range's values
  int64_t examples;     // the number of examples in the mean; in [0, 2^32), checked by the caller
};

// The arrays must not overlap, except where noted.
struct UpdateRange {
  int64_t count;  // elements
  const float* old_values;
  absl::Span<const Slot> slots;  // as Optimizer::slot_names()
  float* new_values;             // may equal old_values, unless the rule is layerwise
  float gradient_scale = 1;      // the factor that clipping by a norm applies to the mean
  // For updates larger than the caches: with a single gradient, values that are not updated in place are
  // written past the caches. The caches then neither fetch them first nor evict other data for them. The
  // result is the same to the bit.
  bool streams = false;
};

// The result of ApplyMean() on success.
inline constexpr int64_t kAllFinite = -1;

// Computes mean = sum_i examples_i * g_i / sum_i examples_i in float, summed in the given order, and applies
// the optimizer to it once: clip, penalty, weight decay, rule, average. With a layerwise rule, new_values receives the
// directions, and MoveLayer() completes the update.
//
// The weights are first divided by their greatest common divisor: contributors with equal examples give the
// plain mean sum(g)/N, and a single contributor gives exactly its gradient. A contributor with 0 examples is
// not read. If no contributor has examples, the mean is 0 and the optimizer still runs, so momentum
// continues. `gradients` must not be empty.
//
// Returns kAllFinite, or the index in the range of the first element whose mean is infinite or NaN. In that
// case the range, including its slots, is partly updated: the caller must stop, and neither publish
// new_values nor save the slots.
int64_t ApplyMean(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const WeightedGradient> gradients, const UpdateRange& range,
                  Isa isa = WidestIsa());

// Computes only the mean of ApplyMean(). An update with this mean as its single gradient gives the same bits.
// At least one gradient must have examples.
void WriteMean(absl::Span<const WeightedGradient> gradients, int64_t count, float* mean,
               Isa isa = WidestIsa());

// Adds one term to a mean that is computed in several calls: sum = (sum + weight * gradient) / divisor,
// element by element. Starting from 0, with the weights divided by their greatest common divisor and the last
// divisor equal to their sum, the result is the mean of ApplyMean(), in the order of the calls.
void AddTerm(const float* gradient, float weight, float divisor, int64_t count, float* sum,
             Isa isa = WidestIsa());

// new = momentum * old + (1 - momentum) * mean, without an optimizer: for statistics that workers push in
// place of a gradient. If there are no examples, or if the momentum is 1, nothing changes and the gradients
// are not read. Returns as ApplyMean().
int64_t ApplyMovingAverage(float momentum, absl::Span<const WeightedGradient> gradients,
                           const UpdateRange& range, Isa isa = WidestIsa());

// Sums of squares, in double, from which norms are computed. The sums of a variable's ranges add up to the
// squares of its norms.
struct Squares {
  double gradient = 0;   // sum over the mean gradient
  double values = 0;     // sum over the values after weight decay
  double direction = 0;  // sum over the directions that a layerwise rule stores in new_values

  Squares& operator+=(const Squares& other);
  friend bool operator==(const Squares&, const Squares&) = default;
};

// Returns [band]: the sum of the squares of the mean over each band of `band` elements; the last band may be
// shorter. Sets only `gradient`. The order of summation depends only on the size of the band.
std::vector<Squares> SquaresOfMean(absl::Span<const WeightedGradient> gradients, int64_t count, int64_t band,
                                   Isa isa = WidestIsa());
// As SquaresOfMean(), for a layerwise rule after ApplyMean(): sets `values` and `direction`.
std::vector<Squares> SquaresOfLayer(const Optimizer& optimizer, const UpdateStep& step,
                                    const UpdateRange& range, int64_t band, Isa isa = WidestIsa());

// Completes an update by a layerwise rule. `layer`: the sums over the whole variable.
// new = decayed old - learning_rate |values| / |direction| direction, where the ratio is 1 if a norm is 0.
// Then updates the average.
void MoveLayer(const Optimizer& optimizer, const UpdateStep& step, const Squares& layer,
               const UpdateRange& range, Isa isa = WidestIsa());

}  // namespace cairn::optim

// One update of one range of one variable: the mean of several workers' gradients, the optimizer, the new
// value, fused block by block so that every byte of memory is touched once. Where an optimizer needs norms,
// further passes take them.
//
// Pure functions: they own nothing and lock nothing. Ranges of one variable may run on several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

struct WeightedGradient {
  const float* values;  // parallel to the range's values
  int64_t examples;     // how many this gradient is the mean of; in [0, 2^32), which the caller has checked
};

// Nothing may overlap but what is said to.
struct UpdateRange {
  int64_t count;  // elements
  const float* old_values;
  absl::Span<const Slot> slots;  // as Optimizer::slot_names()
  float* new_values;             // may equal old_values, unless the rule is layerwise
  float gradient_scale = 1;      // what clipping by a norm leaves of the mean
  // Where there is one gradient, what is written elsewhere than it was read goes past the caches, which then
  // neither fetch it first nor lose what else they hold: for updates of more than they have room for. The
  // bits are the same.
  bool streams = false;
};

// What ApplyMean returns when all is well.
inline constexpr int64_t kAllFinite = -1;

// mean = sum_i examples_i * g_i / sum_i examples_i in float, summed in the given order, then the optimizer
// once: clip, weight decay, rule, average. With a layerwise rule new_values is left for MoveLayer().
//
// The weights are reduced by their greatest common divisor first: contributors with equal examples give the
// plain mean sum(g)/N, and a single one gives exactly its gradient. A contributor of 0 examples is not read.
// With no example at all the mean is 0, and the optimizer still runs (momentum goes on). At least one
// gradient.
//
// Returns kAllFinite, or the index in the range of the first element whose mean is infinite or NaN. The range
// is then partly updated, slots too: the caller must stop, and neither publish new_values nor save the slots.
int64_t ApplyMean(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const WeightedGradient> gradients, const UpdateRange& range,
                  Isa isa = WidestIsa());

// The mean alone, as ApplyMean() takes it: a single gradient of these values then makes the same update to
// the bit. At least one gradient with an example.
void WriteMean(absl::Span<const WeightedGradient> gradients, int64_t count, float* mean,
               Isa isa = WidestIsa());

// One term of a mean whose terms are in several places: sum = (sum + weight * gradient) / divisor, element by
// element. From 0 on, with the weights divided by their greatest common divisor and the last divisor their
// sum, it comes to what ApplyMean() takes, in the order of the calls.
void AddTerm(const float* gradient, float weight, float divisor, int64_t count, float* sum,
             Isa isa = WidestIsa());

// new = momentum * old + (1 - momentum) * mean, without any optimizer: for statistics that workers push in
// place of a gradient. Without an example nothing changes. At a momentum of 1 nothing changes either, and the
// gradients are not read. Returns as ApplyMean().
int64_t ApplyMovingAverage(float momentum, absl::Span<const WeightedGradient> gradients,
                           const UpdateRange& range, Isa isa = WidestIsa());

// Sums of squares, in double: norms on their way. Those of a variable's ranges add up to the squares of its
// norms.
struct Squares {
  double gradient = 0;   // of the mean gradient
  double values = 0;     // of the values after weight decay
  double direction = 0;  // of what a layerwise rule left in new_values

  Squares& operator+=(const Squares& other);
  friend bool operator==(const Squares&, const Squares&) = default;
};

// Of each `band` elements of `count` in turn; the last band may be shorter. [band], with the one field set.
// Each sum is taken in an order that depends on the band's size alone.
std::vector<Squares> SquaresOfMean(absl::Span<const WeightedGradient> gradients, int64_t count, int64_t band,
                                   Isa isa = WidestIsa());
// The same of a layer, after ApplyMean(): the two other fields.
std::vector<Squares> SquaresOfLayer(const Optimizer& optimizer, const UpdateStep& step,
                                    const UpdateRange& range, int64_t band, Isa isa = WidestIsa());

// Ends an update by a layerwise rule, with the sums of the whole variable:
// new = decayed old - learning_rate |values| / |direction| direction, the ratio being 1 where a norm is 0;
// then the average.
void MoveLayer(const Optimizer& optimizer, const UpdateStep& step, const Squares& layer,
               const UpdateRange& range, Isa isa = WidestIsa());

}  // namespace cairn::ps

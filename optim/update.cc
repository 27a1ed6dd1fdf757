#include "optim/update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/core/status.h"
#include "optim/constraint.h"

namespace cairn::optim {
namespace {

// kWorthSharing: the minimum number of elements for which waking the thread pool pays off. kCut: the unit in
// which the elements are divided among threads, a multiple of every page size and of the size of a hardware
// prefetch.
constexpr int64_t kWorthSharing = int64_t{128} << 10;
constexpr int64_t kCut = int64_t{4} << 10;

// Elements [begin, end) of all values.
struct Window {
  int64_t begin, end;
};

// A contiguous run of a gradient's elements in memory, up to element `end`.
struct Place {
  const float* elements;  // null if the gradient has no elements
  int64_t end;
};
Place PlaceOf(const ContributedGradient& gradient, const Window& window) {
  const absl::Span<const ElementRun> runs = gradient.runs();
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), window.begin,
                       [](int64_t element, const ElementRun& run) { return element < run.begin; });
  CAIRN_CHECK(after != runs.begin());
  const ElementRun& run = *std::prev(after);
  return {.elements = run.elements == nullptr ? nullptr : run.elements + (window.begin - run.begin),
          .end = after == runs.end() ? window.end : std::min(window.end, after->begin)};
}

using Gradients = absl::InlinedVector<WeightedGradient, 8>;

// The elements of each gradient in a window. Each gradient must be contiguous in the window.
Gradients Cut(absl::Span<const ContributedGradient> gradients, const Window& window) {
  Gradients cut;
  for (const ContributedGradient& gradient : gradients)
    cut.push_back({PlaceOf(gradient, window).elements, gradient.examples()});
  return cut;
}

// Calls body(window) for consecutive windows in which each gradient is contiguous, until a call returns
// something other than kAllFinite, and returns that value.
template <typename Body>
int64_t ForEachRun(absl::Span<const ContributedGradient> gradients, Window window, Body body) {
  while (window.begin < window.end) {
    Window run = window;
    for (const ContributedGradient& gradient : gradients) run.end = PlaceOf(gradient, run).end;
    const int64_t non_finite = body(run);
    if (non_finite != kAllFinite) return non_finite;
    window.begin = run.end;
  }
  return kAllFinite;
}

// The factor that limits a gradient of this norm to `limit`. The factor is 1 for a norm that is not finite,
// which ApplyMean() will report.
float ScaleTo(float limit, double squared_norm) {
  const double norm = std::sqrt(squared_norm);
  return norm > limit ? static_cast<float>(limit / norm) : 1;
}

const Optimizer& OptimizerOf(const Update& update, const UpdateSlice& slice) {
  return slice.optimizer == nullptr ? update.optimizer : *slice.optimizer;
}

// UpdateRange::gradient_scale for update.slices[p].
float GradientScale(const Update& update, size_t p) {
  const CommonOptions& options = OptimizerOf(update, update.slices[p]).options();
  if (options.global_clipnorm > 0) return ScaleTo(options.global_clipnorm, update.known.all_gradients);
  if (options.clipnorm > 0) return ScaleTo(options.clipnorm, update.known.of_slice[p].gradient);
  return 1;
}

// Calls body(slice index, the slice's overlap with the window, the UpdateRange of that overlap) for each
// slice, until a result differs from kAllFinite. Returns that result as an index in `all`, otherwise
// kAllFinite.
template <typename Body>
int64_t ForEachSlice(const Update& update, const Window& window, Body body) {
  const UpdateRange& all = update.all;
  absl::InlinedVector<Slot, 4> slots(all.slots.size());
  const auto first =
      std::partition_point(update.slices.begin(), update.slices.end(),
                           [&window](const UpdateSlice& slice) { return slice.end <= window.begin; });
  for (auto p = static_cast<size_t>(first - update.slices.begin()); p < update.slices.size(); ++p) {
    UpdateSlice slice = update.slices[p];
    if (slice.begin >= window.end) break;
    slice.begin = std::max(slice.begin, window.begin);
    slice.end = std::min(slice.end, window.end);
    if (slice.begin >= slice.end) continue;
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = all.slots[s].at(slice.begin);
    const int64_t non_finite = body(p, slice,
                                    UpdateRange{.count = slice.end - slice.begin,
                                                .old_values = all.old_values + slice.begin,
                                                .slots = slots,
                                                .new_values = all.new_values + slice.begin,
                                                .streams = all.streams});
    if (non_finite != kAllFinite) return slice.begin + non_finite;
  }
  return kAllFinite;
}

void KeepSlots(const UpdateRange& range) {
  for (const Slot& slot : range.slots) {
    if (slot.to != slot.from) std::copy_n(slot.from, range.count, slot.to);
  }
}

// Whether the slice has a part in the norms.
bool Trained(const UpdateSlice& slice) {
  return !slice.moving_average_momentum.has_value() && !slice.untouched;
}

// Whether the slice's constraint applies to this update. As in Keras, it does not apply to the average that replaces
// the values at the end.
bool Constrained(const Update& update, const UpdateSlice& slice) {
  return slice.constraint != nullptr && Trained(slice) &&
         !(update.step.last && update.optimizer.options().use_ema);
}

bool AnyTakesNorms(const Update& update) {
  return std::any_of(update.slices.begin(), update.slices.end(),
                     [](const UpdateSlice& slice) { return slice.takes_norms(); });
}

UpdateStep StepOf(const Update& update, const UpdateSlice& slice) {
  UpdateStep step = update.step;
  step.t -= slice.skipped;
  if (slice.learning_rate.has_value()) step.learning_rate = *slice.learning_rate / update.rate_divisor;
  return step;
}

// Computes the mean and applies the rule to it, which gives new values or, if the rule is layerwise,
// directions. New values are constrained element by element. Each gradient must be contiguous in the window.
int64_t ApplyMeansOfRun(const Update& update, const Window& window) {
  return ForEachSlice(update, window, [&](size_t p, const UpdateSlice& slice, UpdateRange range) {
    if (slice.untouched) {
      KeepSlots(range);
      if (range.new_values != range.old_values) std::copy_n(range.old_values, range.count, range.new_values);
      // The first update fills the average, from which it continues when the slice is updated again.
      if (update.optimizer.options().use_ema && StepOf(update, slice).t == 1) {
        std::copy_n(range.old_values, range.count, range.slots.back().to);
      }
      return kAllFinite;
    }
    const Gradients cut = Cut(update.gradients, {slice.begin, slice.end});
    if (slice.moving_average_momentum.has_value()) {
      KeepSlots(range);
      return ApplyMovingAverage(*slice.moving_average_momentum, cut, range, update.isa);
    }
    range.gradient_scale = GradientScale(update, p);
    const int64_t non_finite =
        ApplyMean(OptimizerOf(update, slice), StepOf(update, slice), cut, range, update.isa);
    if (non_finite == kAllFinite && Constrained(update, slice) && !slice.takes_norms() &&
        !update.optimizer.rule().layerwise()) {
      RaiseToZero(range.count, range.new_values, update.isa);
    }
    return non_finite;
  });
}

// As ApplyMeansOfRun(), for gradients that need not be contiguous in the window.
int64_t ApplyMeansIn(const Update& update, const Window& window) {
  return ForEachRun(update.gradients, window,
                    [&](const Window& run) { return ApplyMeansOfRun(update, run); });
}

Window Everything(const Update& update) {
  return {.begin = 0, .end = update.all.count};
}

// The order of the sums must not depend on where a gradient is stored. Therefore a gradient in several memory
// blocks is first made contiguous.
std::vector<Squares> SquaresOfGradients(const Update& update, const UpdateSlice& slice) {
  const Window window = {slice.begin, slice.end};
  Gradients cut = Cut(update.gradients, window);
  std::vector<std::vector<float>> together;
  for (size_t i = 0; i < cut.size(); ++i) {
    const absl::Span<const ContributedGradient> gradient = update.gradients.subspan(i, 1);
    if (PlaceOf(gradient[0], window).end == window.end) continue;
    std::vector<float>& elements = together.emplace_back();
    ForEachRun(gradient, window, [&](const Window& run) {
      const float* const begin = PlaceOf(gradient[0], run).elements;
      elements.insert(elements.end(), begin, begin + (run.end - run.begin));
      return kAllFinite;
    });
    cut[i].values = elements.data();
  }
  return SquaresOfMean(cut, slice.end - slice.begin, slice.band, update.isa);
}

// Updates all elements, with the help of the thread pool.
int64_t ApplyMeans(const Update& update) {
  const int64_t count = update.all.count;
  if (update.thread_pool == nullptr || update.thread_pool->size() == 1 || count < kWorthSharing) {
    return ApplyMeansIn(update, Everything(update));
  }
  const int64_t size = update.thread_pool->size();
  const int64_t each = ((count + size - 1) / size + kCut - 1) / kCut * kCut;
  std::vector<int64_t> non_finite(static_cast<size_t>(size));
  update.thread_pool->ParallelRun([&](int i) {
    const int64_t begin = i * each;
    non_finite[static_cast<size_t>(i)] =
        ApplyMeansIn(update, {.begin = begin, .end = std::min(begin + each, count)});
  });
  for (int64_t first : non_finite) {
    if (first != kAllFinite) return first;
  }
  return kAllFinite;
}

}  // namespace

MeasuredSlices MeasureSlices(Norms norms, const Update& update) {
  MeasuredSlices measured;
  if (norms == Norms::kLayer) measured.non_finite = ApplyMeans(update);
  if (measured.non_finite != kAllFinite) return measured;
  measured.of_slice.resize(update.slices.size());
  ForEachSlice(update, Everything(update), [&](size_t p, const UpdateSlice& slice, const UpdateRange& range) {
    if (slice.moving_average_momentum.has_value()) return kAllFinite;
    if (slice.untouched) {
      measured.of_slice[p].resize(static_cast<size_t>((range.count + slice.band - 1) / slice.band));
      return kAllFinite;
    }
    measured.of_slice[p] = norms == Norms::kGradient
                               ? SquaresOfGradients(update, slice)
                               : SquaresOfLayer(OptimizerOf(update, slice), StepOf(update, slice), range,
                                                slice.band, update.isa);
    return kAllFinite;
  });
  return measured;
}

int64_t UpdateSlices(const Update& update) {
  const bool layerwise = update.optimizer.rule().layerwise();
  if (!layerwise) {
    const int64_t non_finite = ApplyMeans(update);
    if (non_finite != kAllFinite || !AnyTakesNorms(update)) return non_finite;
  }
  return ForEachSlice(update, Everything(update),
                      [&](size_t p, const UpdateSlice& slice, const UpdateRange& range) {
                        if (layerwise && Trained(slice)) {
                          MoveLayer(OptimizerOf(update, slice), StepOf(update, slice),
                                    update.known.of_slice[p], range, update.isa);
                        }
                        if (!Constrained(update, slice)) return kAllFinite;
                        if (slice.takes_norms()) {
                          ScaleToNorms(*slice.constraint, slice.shape, range.new_values);
                        } else if (layerwise) {
                          RaiseToZero(range.count, range.new_values, update.isa);
                        }
                        return kAllFinite;
                      });
}

int64_t UpdatePiece(const Update& update, int64_t begin, int64_t end) {
  CAIRN_CHECK(update.optimizer.norms().empty() && !AnyTakesNorms(update));
  return ApplyMeansIn(update, {.begin = begin, .end = end});
}

void WriteMean(absl::Span<const ContributedGradient> gradients, int64_t begin, int64_t end, float* mean,
               Isa isa) {
  ForEachRun(gradients, {.begin = begin, .end = end}, [&](const Window& run) {
    WriteMean(Cut(gradients, run), run.end - run.begin, mean + run.begin, isa);
    return kAllFinite;
  });
}

}  // namespace cairn::optim

// Updates whole variables on one server in one call, for tests of the arithmetic: MeasureSlices() and
// UpdateSlices().
#pragma once

#include <vector>

#include "optim/update.h"

namespace cairn::optim {

// Each of `slices` is a whole variable, and there are no others.
inline int64_t UpdateWhole(const Optimizer& optimizer, const UpdateStep& step,
                           absl::Span<const ContributedGradient> gradients, std::vector<UpdateSlice> slices,
                           const UpdateRange& all, Isa isa = WidestIsa(), ThreadPool* thread_pool = nullptr) {
  for (UpdateSlice& slice : slices) slice.band = slice.end - slice.begin;
  KnownSquares known;
  const Update update = {.optimizer = optimizer,
                         .step = step,
                         .gradients = gradients,
                         .slices = slices,
                         .all = all,
                         .known = known,
                         .isa = isa,
                         .thread_pool = thread_pool};
  for (Norms norms : optimizer.norms()) {
    const MeasuredSlices measured = MeasureSlices(norms, update);
    if (measured.non_finite != kAllFinite) return measured.non_finite;
    known = {};
    for (const std::vector<Squares>& bands : measured.of_slice) {
      known.of_slice.push_back(bands.empty() ? Squares() : bands[0]);
      known.all_gradients += known.of_slice.back().gradient;
    }
  }
  return UpdateSlices(update);
}

}  // namespace cairn::optim

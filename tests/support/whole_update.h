// Updates whole variables on one server in one call, for tests of the arithmetic: MeasureParts() and
// UpdateParts().
#pragma once

#include <vector>

#include "ps/optim/update.h"

namespace cairn::ps {

// Each of `parts` is a whole variable, and there are no others.
inline int64_t UpdateWhole(const Optimizer& optimizer, const UpdateStep& step,
                           absl::Span<const ContributedGradient> gradients, std::vector<UpdatePart> parts,
                           const UpdateRange& all, Isa isa = WidestIsa(), ThreadPool* thread_pool = nullptr) {
  for (UpdatePart& part : parts) part.band = part.end - part.begin;
  KnownSquares known;
  const Update update = {.optimizer = optimizer,
                         .step = step,
                         .gradients = gradients,
                         .parts = parts,
                         .all = all,
                         .known = known,
                         .isa = isa,
                         .thread_pool = thread_pool};
  for (Norms norms : optimizer.norms()) {
    const MeasuredParts measured = MeasureParts(norms, update);
    if (measured.non_finite != kAllFinite) return measured.non_finite;
    known = {};
    for (const std::vector<Squares>& bands : measured.of_part) {
      known.of_part.push_back(bands.empty() ? Squares() : bands[0]);
      known.all_gradients += known.of_part.back().gradient;
    }
  }
  return UpdateParts(update);
}

}  // namespace cairn::ps

// One update of all that a server holds: norms first where the optimizer needs them, then each part of the
// values by its rule.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "ps/optim/apply.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// Elements [begin, end) of a server's values that change by one rule.
struct UpdatePart {
  int64_t begin = 0;
  int64_t end = 0;
  std::optional<float> moving_average_momentum{};  // absent: the optimizer; else ApplyMovingAverage()
};

// Updates the `parts` of `all`, each of whose elements is in one part. Where optimizer.norms() is not kNone,
// each of the optimizer's parts must be one whole variable, and for kGlobal they must be all variables of the
// job. Parts that are moving averages take no part in norms.
//
// Returns as ApplyMean(), an index in `all`.
int64_t UpdateParts(const Optimizer& optimizer, const UpdateStep& step,
                    absl::Span<const WeightedGradient> gradients, absl::Span<const UpdatePart> parts,
                    const UpdateRange& all, Isa isa = WidestIsa());

}  // namespace cairn::ps

#include "ps/optim/update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace cairn::ps {
namespace {

using Gradients = absl::InlinedVector<WeightedGradient, 8>;

Gradients Cut(absl::Span<const WeightedGradient> gradients, const UpdatePart& part) {
  Gradients cut(gradients.begin(), gradients.end());
  for (WeightedGradient& gradient : cut) {
    if (gradient.values != nullptr) gradient.values += part.begin;
  }
  return cut;
}

// What is left of a gradient of this norm; 1 for a norm that is not finite, which ApplyMean() will report.
float ScaleTo(float limit, double squared_norm) {
  const double norm = std::sqrt(squared_norm);
  return norm > limit ? static_cast<float>(limit / norm) : 1;
}

// UpdateRange::gradient_scale for each part. Here servers that hold different variables, or parts of one,
// would add up their sums.
std::vector<float> GradientScales(const CommonOptions& options, absl::Span<const WeightedGradient> gradients,
                                  absl::Span<const UpdatePart> parts, Isa isa) {
  std::vector<float> scales(parts.size(), 1);
  if (options.clipnorm == 0 && options.global_clipnorm == 0) return scales;
  double total = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].moving_average_momentum.has_value()) continue;
    const double squared = SquaredNormOfMean(Cut(gradients, parts[p]), parts[p].end - parts[p].begin, isa);
    total += squared;
    if (options.clipnorm > 0) scales[p] = ScaleTo(options.clipnorm, squared);
  }
  if (options.global_clipnorm > 0) {
    std::fill(scales.begin(), scales.end(), ScaleTo(options.global_clipnorm, total));
  }
  return scales;
}

}  // namespace

int64_t UpdateParts(const Optimizer& optimizer, const UpdateStep& step,
                    absl::Span<const WeightedGradient> gradients, absl::Span<const UpdatePart> parts,
                    const UpdateRange& all, Isa isa) {
  const std::vector<float> scales = GradientScales(optimizer.options(), gradients, parts, isa);
  absl::InlinedVector<float*, 4> slots(all.slots.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    const UpdatePart& part = parts[p];
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = all.slots[s] + part.begin;
    const UpdateRange range = {.count = part.end - part.begin,
                               .old_values = all.old_values + part.begin,
                               .slots = slots,
                               .new_values = all.new_values + part.begin,
                               .gradient_scale = scales[p]};
    const Gradients cut = Cut(gradients, part);
    const int64_t non_finite = part.moving_average_momentum.has_value()
                                   ? ApplyMovingAverage(*part.moving_average_momentum, cut, range, isa)
                                   : ApplyMean(optimizer, step, cut, range, isa);
    if (non_finite != kAllFinite) return part.begin + non_finite;
    if (optimizer.rule().layerwise() && !part.moving_average_momentum.has_value()) {
      MoveLayer(optimizer, step, SquaredNormsOfLayer(optimizer, step, range, isa), range, isa);
    }
  }
  return kAllFinite;
}

}  // namespace cairn::ps

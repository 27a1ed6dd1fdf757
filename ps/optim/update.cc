#include "ps/optim/update.h"

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

// UpdateRange::gradient_scale of a part.
float GradientScale(const Update& update, size_t part) {
  const CommonOptions& options = update.optimizer.options();
  if (options.global_clipnorm > 0) return ScaleTo(options.global_clipnorm, update.known.all_gradients);
  if (options.clipnorm > 0) return ScaleTo(options.clipnorm, update.known.of_part[part].gradient);
  return 1;
}

// Calls body(part, its range) until one returns something else than kAllFinite; that, as an index in `all`.
template <typename Body>
int64_t ForEachPart(const Update& update, Body body) {
  const UpdateRange& all = update.all;
  absl::InlinedVector<float*, 4> slots(all.slots.size());
  for (size_t p = 0; p < update.parts.size(); ++p) {
    const UpdatePart& part = update.parts[p];
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = all.slots[s] + part.begin;
    const int64_t non_finite = body(p, UpdateRange{.count = part.end - part.begin,
                                                   .old_values = all.old_values + part.begin,
                                                   .slots = slots,
                                                   .new_values = all.new_values + part.begin});
    if (non_finite != kAllFinite) return part.begin + non_finite;
  }
  return kAllFinite;
}

// The mean, and what its rule makes of it: new values, or directions where the rule is layerwise.
int64_t ApplyMeans(const Update& update) {
  return ForEachPart(update, [&](size_t p, UpdateRange range) {
    const UpdatePart& part = update.parts[p];
    const Gradients cut = Cut(update.gradients, part);
    if (part.moving_average_momentum.has_value()) {
      return ApplyMovingAverage(*part.moving_average_momentum, cut, range, update.isa);
    }
    range.gradient_scale = GradientScale(update, p);
    return ApplyMean(update.optimizer, update.step, cut, range, update.isa);
  });
}

}  // namespace

MeasuredParts MeasureParts(Norms norms, const Update& update) {
  MeasuredParts measured;
  if (norms == Norms::kLayer) measured.non_finite = ApplyMeans(update);
  if (measured.non_finite != kAllFinite) return measured;
  measured.of_part.resize(update.parts.size());
  ForEachPart(update, [&](size_t p, const UpdateRange& range) {
    const UpdatePart& part = update.parts[p];
    if (part.moving_average_momentum.has_value()) return kAllFinite;
    measured.of_part[p] = norms == Norms::kGradient
                              ? SquaresOfMean(Cut(update.gradients, part), range.count, part.band, update.isa)
                              : SquaresOfLayer(update.optimizer, update.step, range, part.band, update.isa);
    return kAllFinite;
  });
  return measured;
}

int64_t UpdateParts(const Update& update) {
  if (!update.optimizer.rule().layerwise()) return ApplyMeans(update);
  return ForEachPart(update, [&](size_t p, const UpdateRange& range) {
    if (!update.parts[p].moving_average_momentum.has_value()) {
      MoveLayer(update.optimizer, update.step, update.known.of_part[p], range, update.isa);
    }
    return kAllFinite;
  });
}

}  // namespace cairn::ps

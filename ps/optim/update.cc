#include "ps/optim/update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// Elements from which on an update takes longer than it does to wake the crew; and where it is cut: a
// multiple of any page's and of what a processor fetches at once.
constexpr int64_t kWorthSharing = int64_t{128} << 10;
constexpr int64_t kCut = int64_t{4} << 10;

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

// Elements [begin, end) of `all`.
struct Window {
  int64_t begin, end;
};

// Calls body(part, what of it is in the window, its range) until one returns something else than kAllFinite;
// that, as an index in `all`.
template <typename Body>
int64_t ForEachPart(const Update& update, const Window& window, Body body) {
  const UpdateRange& all = update.all;
  absl::InlinedVector<Slot, 4> slots(all.slots.size());
  for (size_t p = 0; p < update.parts.size(); ++p) {
    UpdatePart part = update.parts[p];
    part.begin = std::max(part.begin, window.begin);
    part.end = std::min(part.end, window.end);
    if (part.begin >= part.end) continue;
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = all.slots[s].at(part.begin);
    const int64_t non_finite = body(p, part,
                                    UpdateRange{.count = part.end - part.begin,
                                                .old_values = all.old_values + part.begin,
                                                .slots = slots,
                                                .new_values = all.new_values + part.begin,
                                                .streams = all.streams});
    if (non_finite != kAllFinite) return part.begin + non_finite;
  }
  return kAllFinite;
}

// The mean, and what its rule makes of it: new values, or directions where the rule is layerwise.
int64_t ApplyMeansIn(const Update& update, const Window& window) {
  return ForEachPart(update, window, [&](size_t p, const UpdatePart& part, UpdateRange range) {
    const Gradients cut = Cut(update.gradients, part);
    if (part.moving_average_momentum.has_value()) {  // whose slots nobody changes
      for (const Slot& slot : range.slots) {
        if (slot.to != slot.from) std::copy_n(slot.from, range.count, slot.to);
      }
      return ApplyMovingAverage(*part.moving_average_momentum, cut, range, update.isa);
    }
    range.gradient_scale = GradientScale(update, p);
    return ApplyMean(update.optimizer, update.step, cut, range, update.isa);
  });
}

Window Everything(const Update& update) {
  return {.begin = 0, .end = update.all.count};
}

// Of all elements, with the crew's help.
int64_t ApplyMeans(const Update& update) {
  const int64_t count = update.all.count;
  if (update.crew == nullptr || update.crew->size() == 1 || count < kWorthSharing) {
    return ApplyMeansIn(update, Everything(update));
  }
  const int64_t size = update.crew->size();
  const int64_t each = ((count + size - 1) / size + kCut - 1) / kCut * kCut;
  std::vector<int64_t> non_finite(static_cast<size_t>(size));
  update.crew->Share([&](int i) {
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

MeasuredParts MeasureParts(Norms norms, const Update& update) {
  MeasuredParts measured;
  if (norms == Norms::kLayer) measured.non_finite = ApplyMeans(update);
  if (measured.non_finite != kAllFinite) return measured;
  measured.of_part.resize(update.parts.size());
  ForEachPart(update, Everything(update), [&](size_t p, const UpdatePart& part, const UpdateRange& range) {
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
  return ForEachPart(update, Everything(update),
                     [&](size_t p, const UpdatePart& part, const UpdateRange& range) {
                       if (!part.moving_average_momentum.has_value()) {
                         MoveLayer(update.optimizer, update.step, update.known.of_part[p], range, update.isa);
                       }
                       return kAllFinite;
                     });
}

int64_t UpdatePiece(const Update& update, int64_t begin, int64_t end) {
  CAIRN_CHECK(update.optimizer.norms().empty());
  return ApplyMeansIn(update, {.begin = begin, .end = end});
}

}  // namespace cairn::ps

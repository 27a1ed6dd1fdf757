#include "optim/apply.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "common/core/status.h"
#include "optim/simd/loop.h"

namespace cairn::optim {
namespace {

// Number of elements that are processed together in the cache. With 4 gradients and Adam, a block uses 512
// KiB, of which only the mean (64 KiB) is read twice. Smaller blocks are slower, because hardware prefetching
// works within a run.
constexpr int64_t kBlock = 16384;
// Block size when results are written past the caches. A block's gradient is scanned for values that are not
// finite before anything else is read. With small blocks, several streams are nevertheless fetched from
// memory at once.
constexpr int64_t kStreamedBlock = 256;
// Squares are summed in blocks of this size. The size affects the last bit of the sums.
constexpr int64_t kSumBlock = 2048;
static_assert(kSumBlock <= kBlock);

struct Term {
  const float* values;
  float weight;
};

struct Mean {
  absl::InlinedVector<Term, 16> terms;  // in the order of the sum; none has weight 0
  float total = 0;                      // the sum of the weights
};

Mean ReduceWeights(absl::Span<const WeightedGradient> gradients) {
  int64_t divisor = 0;
  int64_t total = 0;
  for (const WeightedGradient& gradient : gradients) {
    CAIRN_CHECK(gradient.examples >= 0);
    divisor = std::gcd(divisor, gradient.examples);
    total += gradient.examples;
  }
  Mean mean;
  if (total == 0) return mean;
  for (const WeightedGradient& gradient : gradients) {
    if (gradient.examples == 0) continue;
    mean.terms.push_back({gradient.values, static_cast<float>(gradient.examples / divisor)});
  }
  mean.total = static_cast<float>(total / divisor);
  return mean;
}

// For elements [begin, begin + count) of the terms, from left to right:
// sum[i] = (sum[i] + terms[0] + ... + terms[kTerms - 1]) / divisor
template <size_t kTerms>
void AddTerms(const Term* terms, int64_t begin, int64_t count, float divisor, Isa isa, float* sum) {
  std::array<Term, kTerms> at;
  for (size_t k = 0; k < kTerms; ++k) at[k] = {terms[k].values + begin, terms[k].weight};
  ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
    float s = sum[i];
    for (size_t k = 0; k < kTerms; ++k) s += at[k].weight * at[k].values[i];
    sum[i] = s / divisor;
  });
}

// Returns the mean of elements [begin, begin + count): a pointer into the gradient if there is only one term,
// otherwise `scratch`, which then contains the mean.
const float* MeanOfBlock(const Mean& mean, int64_t begin, int64_t count, Isa isa, float* scratch) {
  if (mean.terms.size() == 1) return mean.terms[0].values + begin;
  std::fill_n(scratch, count, 0.0f);
  absl::Span<const Term> left = mean.terms;
  while (!left.empty()) {
    const size_t taken = std::min<size_t>(left.size(), 4);
    const float divisor = taken == left.size() ? mean.total : 1;
    switch (taken) {
      case 1:
        AddTerms<1>(left.data(), begin, count, divisor, isa, scratch);
        break;
      case 2:
        AddTerms<2>(left.data(), begin, count, divisor, isa, scratch);
        break;
      case 3:
        AddTerms<3>(left.data(), begin, count, divisor, isa, scratch);
        break;
      case 4:
        AddTerms<4>(left.data(), begin, count, divisor, isa, scratch);
        break;
    }
    left.remove_prefix(taken);
  }
  return scratch;
}

constexpr uint32_t kSignBit = 0x80000000;
constexpr uint32_t kInfinityBits = 0x7f800000;  // the bits of a NaN, without the sign, are above these

int64_t FirstNonFinite(const float* values, int64_t count, Isa isa) {
  const uint32_t largest = RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
    uint32_t bits = 0;
    for (int64_t i = 0; i < count; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(values[i]) & ~kSignBit);
    return bits;
  });
  if (largest < kInfinityBits) return kAllFinite;
  int64_t i = 0;
  while ((std::bit_cast<uint32_t>(values[i]) & ~kSignBit) < kInfinityBits) ++i;
  return i;
}

// The number of partial sums in SumOfSquares(): two vectors of the widest instruction set.
constexpr int64_t kLanes = 16;

// Adds elements i, i + kLanes, i + 2 kLanes, ... in one lane, and then the lanes in pairs. The order is the
// same for all instruction sets.
double SumOfSquares(const float* values, int64_t count, Isa isa) {
  return RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
    double lanes[kLanes] = {};
    const int64_t whole = count - count % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const double x = values[i + lane];
        lanes[lane] += x * x;
      }
    }
    for (int64_t i = whole; i < count; ++i) {
      const double x = values[i];
      lanes[i - whole] += x * x;
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
  });
}

// Returns, for each band, the sum of of_block(begin, size) over the blocks of the band, in order.
template <typename OfBlock>
std::vector<Squares> SumBands(int64_t count, int64_t band, OfBlock of_block) {
  CAIRN_CHECK(band > 0 || count == 0);
  std::vector<Squares> sums;
  for (int64_t begin = 0; begin < count; begin += band) {
    const int64_t end = std::min(begin + band, count);
    Squares& sum = sums.emplace_back();
    for (int64_t block = begin; block < end; block += kSumBlock)
      sum += of_block(block, std::min(kSumBlock, end - block));
  }
  return sums;
}

// Returns the block's gradient after clipping: `gradient` itself if clipping changes nothing, otherwise
// `scratch`. Both may be the same memory.
const float* ClipBlock(const float* gradient, int64_t count, float clipvalue, float scale, Isa isa,
                       float* scratch) {
  if (clipvalue > 0) {
    ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      scratch[i] = std::min(std::max(gradient[i], -clipvalue), clipvalue);
    });
    return scratch;
  }
  if (scale == 1) return gradient;
  ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA { scratch[i] = gradient[i] * scale; });
  return scratch;
}

// Returns the block's gradient with what torch's options change in it: `gradient` itself if they change nothing,
// otherwise `scratch`. Both may be the same memory.
const float* PenaliseBlock(const CommonOptions& options, const float* gradient, const float* values,
                           int64_t count, Isa isa, float* scratch) {
  const float sign = options.maximize ? -1 : 1;
  const float penalty = options.l2_penalty;
  if (!options.maximize && penalty == 0) return gradient;
  ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
    scratch[i] = sign * gradient[i] + penalty * values[i];
  });
  return scratch;
}

// Returns the block's values after weight decay: `values` itself if there is no decay, otherwise `decayed`.
const float* DecayBlock(const Optimizer& optimizer, const UpdateStep& step, const float* values,
                        int64_t count, Isa isa, float* decayed) {
  const float decay = step.learning_rate * optimizer.options().weight_decay;
  if (decay == 0) return values;
  ForEachElement(isa, count,
                 [=](int64_t i) CAIRN_INLINE_LAMBDA { decayed[i] = values[i] - values[i] * decay; });
  return decayed;
}

// With use_ema: updates the average with the block's new values, and replaces these values by the average
// when that is due.
void AverageBlock(const Optimizer& optimizer, const UpdateStep& step, const Slot& average, int64_t count,
                  Isa isa, float* values) {
  const CommonOptions& options = optimizer.options();
  const float* from = average.from;
  float* to = average.to;
  const float momentum = step.t == 1 ? 0 : options.ema_momentum;
  const float one_minus_momentum = 1 - momentum;
  ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
    to[i] = momentum * from[i] + one_minus_momentum * values[i];
  });
  const int64_t frequency = options.ema_overwrite_frequency;
  if (step.last || (frequency > 0 && step.t % frequency == 0)) std::copy_n(to, count, values);
}

// A block of an UpdateRange, with its mean gradient.
struct Block {
  int64_t count;
  const float* old_values;
  const float* gradient;
  absl::Span<const Slot> slots;
  float* new_values;
};

// Applies weight decay, the rule and the average to a block. With a layerwise rule, only writes the
// directions.
void UpdateBlock(const Optimizer& optimizer, const UpdateStep& step, const Block& block, Isa isa) {
  const UpdateRule& rule = optimizer.rule();
  const bool layerwise = rule.layerwise();
  const auto size = static_cast<size_t>(block.count);
  const float* values = block.old_values;
  if (!layerwise) values = DecayBlock(optimizer, step, values, block.count, isa, block.new_values);
  const auto slots = block.slots.first(rule.slot_names().size());
  rule.Update(step, {values, size}, {block.gradient, size}, slots, block.new_values);
  if (layerwise || !optimizer.options().use_ema) return;
  AverageBlock(optimizer, step, block.slots.back(), block.count, isa, block.new_values);
}

// As UpdateBlock(), for a small block: results that are not written in place are computed in the first-level
// cache, and then written past the caches.
void UpdateStreamed(const Optimizer& optimizer, const UpdateStep& step, const Block& block, Isa isa) {
  CAIRN_CHECK(block.count <= kStreamedBlock);
  constexpr size_t kMaxStreams = 4;  // further streams are written normally
  struct Stream {
    const float* made;
    float* to;
  };
  alignas(64) float made[kMaxStreams * kStreamedBlock];
  absl::InlinedVector<Stream, kMaxStreams> streams;
  const auto made_for = [&](float* to) {
    if (streams.size() == kMaxStreams) return to;
    float* const place = made + static_cast<int64_t>(streams.size()) * kStreamedBlock;
    streams.push_back({place, to});
    return place;
  };
  Block here = block;
  absl::InlinedVector<Slot, 4> slots(block.slots.begin(), block.slots.end());
  if (block.new_values != block.old_values) here.new_values = made_for(block.new_values);
  for (Slot& slot : slots) {
    if (slot.to != slot.from) slot.to = made_for(slot.to);
  }
  here.slots = slots;
  UpdateBlock(optimizer, step, here, isa);
  for (const Stream& stream : streams) StreamTo(isa, block.count, stream.made, stream.to);
}

}  // namespace

int64_t ApplyMean(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const WeightedGradient> gradients, const UpdateRange& range, Isa isa) {
  CAIRN_CHECK(!gradients.empty());
  const Mean mean = ReduceWeights(gradients);
  absl::InlinedVector<Slot, 4> slots(range.slots.size());
  alignas(64) float scratch[kBlock];
  // A single gradient is its own mean. The scan for values that are not finite fetches it into the cache.
  const bool lone = mean.terms.size() == 1;
  const bool streams = range.streams && lone;  // with several gradients, reading dominates
  const int64_t block = streams ? kStreamedBlock : lone ? kBlock / 2 : kBlock;
  for (int64_t begin = 0; begin < range.count; begin += block) {
    const int64_t count = std::min(block, range.count - begin);
    const float* gradient = MeanOfBlock(mean, begin, count, isa, scratch);
    const int64_t non_finite = FirstNonFinite(gradient, count, isa);
    if (non_finite != kAllFinite) return begin + non_finite;
    gradient = ClipBlock(gradient, count, optimizer.options().clipvalue, range.gradient_scale, isa, scratch);
    gradient = PenaliseBlock(optimizer.options(), gradient, range.old_values + begin, count, isa, scratch);
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = range.slots[s].at(begin);
    const Block whole = {count, range.old_values + begin, gradient, slots, range.new_values + begin};
    if (streams) {
      UpdateStreamed(optimizer, step, whole, isa);
    } else {
      UpdateBlock(optimizer, step, whole, isa);
    }
  }
  if (streams) EndStreams();
  return kAllFinite;
}

void WriteMean(absl::Span<const WeightedGradient> gradients, int64_t count, float* mean, Isa isa) {
  const Mean of = ReduceWeights(gradients);
  CAIRN_CHECK(!of.terms.empty());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    const float* block = MeanOfBlock(of, begin, size, isa, mean + begin);
    if (block != mean + begin) std::copy_n(block, size, mean + begin);
  }
}

void AddTerm(const float* gradient, float weight, float divisor, int64_t count, float* sum, Isa isa) {
  const Term term = {gradient, weight};
  AddTerms<1>(&term, 0, count, divisor, isa, sum);
}

int64_t ApplyMovingAverage(float momentum, absl::Span<const WeightedGradient> gradients,
                           const UpdateRange& range, Isa isa) {
  CAIRN_CHECK(!gradients.empty());
  const Mean mean = ReduceWeights(gradients);
  if (momentum == 1 || mean.terms.empty()) {
    std::copy_n(range.old_values, range.count, range.new_values);
    return kAllFinite;
  }
  const float one_minus_momentum = 1 - momentum;
  alignas(64) float scratch[kBlock];
  for (int64_t begin = 0; begin < range.count; begin += kBlock) {
    const int64_t count = std::min(kBlock, range.count - begin);
    const float* statistic = MeanOfBlock(mean, begin, count, isa, scratch);
    const int64_t non_finite = FirstNonFinite(statistic, count, isa);
    if (non_finite != kAllFinite) return begin + non_finite;
    const float* old_values = range.old_values + begin;
    float* new_values = range.new_values + begin;
    ForEachElement(isa, count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
      new_values[i] = momentum * old_values[i] + one_minus_momentum * statistic[i];
    });
  }
  return kAllFinite;
}

Squares& Squares::operator+=(const Squares& other) {
  gradient += other.gradient;
  values += other.values;
  direction += other.direction;
  return *this;
}

std::vector<Squares> SquaresOfMean(absl::Span<const WeightedGradient> gradients, int64_t count, int64_t band,
                                   Isa isa) {
  CAIRN_CHECK(!gradients.empty());
  const Mean mean = ReduceWeights(gradients);
  alignas(64) float scratch[kBlock];
  return SumBands(count, band, [&](int64_t begin, int64_t size) {
    return Squares{.gradient = SumOfSquares(MeanOfBlock(mean, begin, size, isa, scratch), size, isa)};
  });
}

std::vector<Squares> SquaresOfLayer(const Optimizer& optimizer, const UpdateStep& step,
                                    const UpdateRange& range, int64_t band, Isa isa) {
  alignas(64) float scratch[kBlock];
  return SumBands(range.count, band, [&](int64_t begin, int64_t size) {
    const float* values = DecayBlock(optimizer, step, range.old_values + begin, size, isa, scratch);
    return Squares{.values = SumOfSquares(values, size, isa),
                   .direction = SumOfSquares(range.new_values + begin, size, isa)};
  });
}

void MoveLayer(const Optimizer& optimizer, const UpdateStep& step, const Squares& layer,
               const UpdateRange& range, Isa isa) {
  const bool has_ratio = layer.values > 0 && layer.direction > 0;
  const double ratio = has_ratio ? std::sqrt(layer.values / layer.direction) : 1;
  const float rate = static_cast<float>(step.learning_rate * ratio);
  alignas(64) float scratch[kBlock];
  for (int64_t begin = 0; begin < range.count; begin += kBlock) {
    const int64_t count = std::min(kBlock, range.count - begin);
    const float* values = DecayBlock(optimizer, step, range.old_values + begin, count, isa, scratch);
    float* new_values = range.new_values + begin;
    ForEachElement(isa, count,
                   [=](int64_t i) CAIRN_INLINE_LAMBDA { new_values[i] = values[i] - rate * new_values[i]; });
    if (!optimizer.options().use_ema) continue;
    AverageBlock(optimizer, step, range.slots.back().at(begin), count, isa, new_values);
  }
}

}  // namespace cairn::optim

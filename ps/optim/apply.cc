#include "ps/optim/apply.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "common/core/status.h"
#include "ps/optim/loop.h"

namespace cairn::ps {
namespace {

// Elements that pass through the cache together: with 4 gradients and Adam 64 KiB of distinct memory, well
// inside any L2, while the mean itself stays in L1.
constexpr int64_t kBlock = 2048;

struct Term {
  const float* values;
  float weight;
};

struct Mean {
  absl::InlinedVector<Term, 16> terms;  // in the order of the sum, none of weight 0
  float total = 0;                      // of the weights
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

// sum[i] = (sum[i] + terms[0] + ... + terms[kTerms - 1]) / divisor, from left to right, over elements
// [begin, begin + count) of the terms.
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

// The mean of elements [begin, begin + count): the one gradient itself, or `scratch` after filling it.
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
constexpr uint32_t kInfinityBits = 0x7f800000;  // NaNs lie above

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

}  // namespace

int64_t ApplyMean(const Optimizer& optimizer, const UpdateStep& step,
                  absl::Span<const WeightedGradient> gradients, const UpdateRange& range, Isa isa) {
  CAIRN_CHECK(!gradients.empty());
  const Mean mean = ReduceWeights(gradients);
  absl::InlinedVector<float*, 4> slots(range.slots.size());
  alignas(64) float scratch[kBlock];
  for (int64_t begin = 0; begin < range.count; begin += kBlock) {
    const int64_t count = std::min(kBlock, range.count - begin);
    const float* block_mean = MeanOfBlock(mean, begin, count, isa, scratch);
    const int64_t non_finite = FirstNonFinite(block_mean, count, isa);
    if (non_finite != kAllFinite) return begin + non_finite;
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = range.slots[s] + begin;
    const size_t size = static_cast<size_t>(count);
    optimizer.Update(step, {range.old_values + begin, size}, {block_mean, size}, slots,
                     range.new_values + begin);
  }
  return kAllFinite;
}

}  // namespace cairn::ps

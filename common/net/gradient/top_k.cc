// Sends the largest elements of a variable by magnitude, unchanged; the others are 0 (A. Aji and K. Heafield,
// "Sparse communication for distributed gradient descent", 2017).
//
//   payload   pairs by rising index: the element's index in the chunk, a 32-bit integer | its float
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/gradient/parts.h"

namespace cairn::net {
namespace {

// If all elements of a chunk are sent, its payload has 256 KiB.
constexpr int64_t kTopKChunk = int64_t{32} << 10;

struct Pair {
  uint32_t index = 0;
  float value = 0;
};
constexpr auto kPairBytes = static_cast<int64_t>(sizeof(Pair));

// Magnitudes have the same order as their bits, which are processed as three digits (radix selection).
struct Digit {
  int shift, bits;
};
constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};

// Counts, for each value of this digit, the elements whose higher digits equal the higher digits of `found`.
void Count(absl::Span<const float> values, const Digit& digit, uint32_t found, absl::Span<int64_t> counts) {
  constexpr size_t kTables = 4;  // so that equal digits in a row do not wait for one another
  std::vector<uint32_t> tables(kTables << digit.bits);
  const int above = digit.shift + digit.bits;
  const uint32_t mask = (1u << digit.bits) - 1;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t magnitude = MagnitudeOf(values[i]);
    if (above < 31 && magnitude >> above != found >> above) continue;
    ++tables[(i % kTables << digit.bits) + (magnitude >> digit.shift & mask)];
  }
  for (size_t i = 0; i < tables.size(); ++i) counts[i & mask] += tables[i];
}

CAIRN_INLINE uint32_t AnyAboveBody(const float* values, int64_t count, uint32_t threshold) {
  uint32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    any |= static_cast<int32_t>(MagnitudeOf(values[i])) >= static_cast<int32_t>(threshold) ? 1u : 0u;
  }
  return any;
}

// Calls take(i) for the selected elements of [first, first + count), in ascending order.
template <typename Take>
CAIRN_INLINE void ForEachSelectedBody(const float* variable, Selection selection, Cut cut, Take& take) {
  constexpr int64_t kLanes = 32;
  const auto look = [&](int64_t i) __attribute__((always_inline)) {
    const uint32_t magnitude = MagnitudeOf(variable[i]);
    if (magnitude > selection.threshold || (magnitude == selection.threshold && i <= selection.last_tie))
      take(i);
  };
  int64_t i = cut.first;
  const int64_t end = cut.first + cut.count;
  for (; i + kLanes <= end; i += kLanes) {
    if (AnyAboveBody(variable + i, kLanes, selection.threshold) == 0) continue;
    for (int64_t lane = 0; lane < kLanes; ++lane) look(i + lane);
  }
  for (; i < end; ++i) look(i);
}

struct Writer {
  char* to;
  int64_t first;
  int64_t pairs;
  const float* variable;
  void operator()(int64_t i) { PutAt(to, pairs++, Pair{static_cast<uint32_t>(i - first), variable[i]}); }
};
CAIRN_INLINE int64_t WritePairsBody(const float* variable, Selection selection, Cut cut, char* to) {
  Writer writer = {to, cut.first, 0, variable};
  ForEachSelectedBody(variable, selection, cut, writer);
  return writer.pairs;
}
CAIRN_VECTOR_FUNCTION(WritePairs, WritePairsBody)

class TopK final : public GradientCodec {
 public:
  int64_t block_elements() const override { return 1; }
  int64_t chunk_elements() const override { return kTopKChunk; }
  bool wants_feedback() const override { return true; }

  Selection Select(absl::Span<const float> variable, int64_t most) const override {
    int64_t left = std::min(most, static_cast<int64_t>(variable.size()));
    if (left <= 0) return {.threshold = kMagnitudeBits};
    uint32_t found = 0;
    for (const Digit& digit : kDigits) {
      std::vector<int64_t> counts(size_t{1} << digit.bits);
      Count(variable, digit, found, absl::MakeSpan(counts));
      size_t value = counts.size() - 1;
      for (; counts[value] < left; --value) left -= counts[value];
      found |= static_cast<uint32_t>(value) << digit.shift;
    }
    Selection selection = {.threshold = found};
    if (found == 0) return selection;
    for (int64_t i = 0; left > 0; ++i) {
      if (MagnitudeOf(variable[static_cast<size_t>(i)]) != found) continue;
      selection.last_tie = i;
      --left;
    }
    return selection;
  }

  int64_t MostBytes(const Cut& cut, int64_t most) const override {
    return std::min(most, cut.count) * kPairBytes;
  }

  int64_t Encode(absl::Span<const float> variable, const Selection& selection, const Cut& cut,
                 char* to) const override {
    return WritePairs(variable.data(), selection, cut, to) * kPairBytes;
  }

  absl::Status Check(const Cut& cut, absl::Span<const char> payload) const override {
    const auto bytes = static_cast<int64_t>(payload.size());
    if (bytes % kPairBytes != 0 || bytes / kPairBytes > cut.count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a chunk of ", bytes, " bytes is not a list of indices and values of ", cut.count, " elements"));
    }
    int64_t before = -1;
    for (int64_t i = 0; i < bytes / kPairBytes; ++i) {
      const auto pair = At<Pair>(payload.data(), i);
      if (pair.index >= cut.count) {
        return absl::InvalidArgumentError(
            absl::StrCat("a top-k chunk: index ", pair.index, ", but the number of elements is ", cut.count));
      }
      if (pair.index <= before) {
        return absl::InvalidArgumentError(
            absl::StrCat("a top-k chunk: index ", pair.index, " cannot follow index ", before));
      }
      if (!IsFinite(pair.value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("a top-k chunk: invalid value ", pair.value, " at index ", pair.index));
      }
      before = pair.index;
    }
    return absl::OkStatus();
  }

  void Decode(const Cut&, absl::Span<const char> payload, int64_t skip, absl::Span<float> to) const override {
    std::fill(to.begin(), to.end(), 0.0f);
    const int64_t pairs = static_cast<int64_t>(payload.size()) / kPairBytes;
    int64_t low = 0;
    for (int64_t high = pairs; low < high;) {
      const int64_t middle = low + (high - low) / 2;
      if (At<Pair>(payload.data(), middle).index < skip) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    for (; low < pairs; ++low) {
      const auto pair = At<Pair>(payload.data(), low);
      const int64_t at = pair.index - skip;
      if (at >= static_cast<int64_t>(to.size())) return;
      to[static_cast<size_t>(at)] = pair.value;
    }
  }
};

}  // namespace

const GradientCodec& TopKCodec() {
  static const TopK codec;
  return codec;
}

}  // namespace cairn::net

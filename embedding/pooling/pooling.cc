#include "embedding/pooling/pooling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/simd/row_loop.h"
#include "optim/simd/loop.h"

namespace cairn::embedding {
namespace {

constexpr std::pair<absl::string_view, Combiner> kCombiners[] = {
    {"sum", Combiner::kSum}, {"mean", Combiner::kMean}, {"sqrtn", Combiner::kSqrtn}, {"max", Combiner::kMax}};

// The arrays of Bags as plain pointers, for the loops.
struct PlainBags {
  explicit PlainBags(const Bags& bags)
      : size(bags.size()),
        splits(bags.row_splits.data()),
        unique(bags.unique.data()),
        weights(bags.weights.empty() ? nullptr : bags.weights.data()) {}

  __attribute__((always_inline)) float weight(int64_t position) const {
    return weights == nullptr ? 1.0f : weights[position];
  }
  // The factor of the weighted sum of bag `b`: 1 / divisor, or 0 if the divisor is 0.
  __attribute__((always_inline)) float Scale(Combiner combiner, int64_t b) const {
    if (combiner == Combiner::kSum) return 1;
    if (weights == nullptr) {
      const auto count = static_cast<float>(splits[b + 1] - splits[b]);
      return count == 0 ? 0.0f : 1 / (combiner == Combiner::kMean ? count : std::sqrt(count));
    }
    float sum = 0;
    for (int64_t p = splits[b]; p < splits[b + 1]; ++p) {
      sum += combiner == Combiner::kMean ? weights[p] : weights[p] * weights[p];
    }
    if (combiner == Combiner::kSqrtn) sum = std::sqrt(sum);
    return sum == 0 ? 0.0f : 1 / sum;
  }

  int64_t size;
  const int64_t* splits;
  const int32_t* unique;
  const float* weights;
};

// A bag whose weighted sum is multiplied by `scale`.
struct BagSum {
  int64_t bag, dim;
  float scale;
  const float* rows;
  float* pooled;  // [dim], of this bag
};

// Pools the columns from `begin` on of bag `b`, as many as `kVectors` vectors have. The sums are local, so that they
// stay in registers.
template <typename Vector, int kVectors>
void PoolColumns(const PlainBags& bags, const BagSum& sum, int64_t begin) {
  Vector sums[kVectors] = {};
  for (int64_t p = bags.splits[sum.bag]; p < bags.splits[sum.bag + 1]; ++p) {
    const float* const x = sum.rows + bags.unique[p] * sum.dim + begin;
    const float w = bags.weight(p);
    Vector values[kVectors];
    std::memcpy(values, x, sizeof(values));
    for (int i = 0; i < kVectors; ++i) sums[i] += w * values[i];
  }
  for (Vector& vector : sums) vector *= sum.scale;
  std::memcpy(sum.pooled + begin, sums, sizeof(sums));
}

void PoolSums(const PlainBags& bags, Combiner combiner, int64_t dim, const float* rows, float* pooled) {
  typedef float Four __attribute__((vector_size(16)));
  for (int64_t b = 0; b < bags.size; ++b) {
    const BagSum sum{b, dim, bags.Scale(combiner, b), rows, pooled + b * dim};
    int64_t column = 0;
    for (; column + 16 <= dim; column += 16) PoolColumns<Four, 4>(bags, sum, column);
    for (; column + 4 <= dim; column += 4) PoolColumns<Four, 1>(bags, sum, column);
    for (; column < dim; ++column) PoolColumns<float, 1>(bags, sum, column);
  }
}

void PoolMaxima(const PlainBags& bags, int64_t dim, const float* rows, float* pooled) {
  optim::RunOn(optim::WidestIsa(), [=]() CAIRN_INLINE_LAMBDA {
    for (int64_t b = 0; b < bags.size; ++b) {
      float* const to = pooled + b * dim;
      const int64_t begin = bags.splits[b], end = bags.splits[b + 1];
      if (begin == end) {
        std::fill_n(to, dim, 0.0f);
        continue;
      }
      std::copy_n(rows + bags.unique[begin] * dim, dim, to);
      for (int64_t p = begin + 1; p < end; ++p) {
        const float* const x = rows + bags.unique[p] * dim;
        ForEachColumn(dim, [=](int64_t j) CAIRN_INLINE_LAMBDA { to[j] = to[j] < x[j] ? x[j] : to[j]; });
      }
    }
  });
}

void AddSumGradients(const PlainBags& bags, Combiner combiner, int64_t dim, const float* pooled_gradient,
                     float* row_gradients) {
  optim::RunOn(optim::WidestIsa(), [=]() CAIRN_INLINE_LAMBDA {
    for (int64_t b = 0; b < bags.size; ++b) {
      const float* const g = pooled_gradient + b * dim;
      const float scale = bags.Scale(combiner, b);
      for (int64_t p = bags.splits[b]; p < bags.splits[b + 1]; ++p) {
        float* const to = row_gradients + bags.unique[p] * dim;
        const float w = bags.weight(p) * scale;
        ForEachColumn(dim, [=](int64_t j) CAIRN_INLINE_LAMBDA { to[j] = to[j] + w * g[j]; });
      }
    }
  });
}

void AddMaximumGradients(const PlainBags& bags, int64_t dim, const PoolGradients& gradients) {
  constexpr int64_t kBlock = 16;
  const float* const rows = gradients.rows.data();
  for (int64_t b = 0; b < bags.size; ++b) {
    const int64_t first = bags.splits[b], end = bags.splits[b + 1];
    for (int64_t begin = 0; begin < dim && first < end; begin += kBlock) {
      const int64_t columns = std::min(kBlock, dim - begin);
      float largest[kBlock];
      int32_t row_of[kBlock];  // [column] the row of the largest value
      std::copy_n(rows + bags.unique[first] * dim + begin, columns, largest);
      std::fill_n(row_of, columns, bags.unique[first]);
      for (int64_t p = first + 1; p < end; ++p) {
        const int32_t row = bags.unique[p];
        const float* const x = rows + row * dim + begin;
        for (int64_t j = 0; j < columns; ++j) {
          const bool larger = largest[j] < x[j];
          row_of[j] = larger ? row : row_of[j];
          largest[j] = larger ? x[j] : largest[j];
        }
      }
      const float* const g = gradients.pooled_gradient.data() + b * dim + begin;
      for (int64_t j = 0; j < columns; ++j)
        gradients.row_gradients[static_cast<size_t>(row_of[j] * dim + begin + j)] += g[j];
    }
  }
}

}  // namespace

absl::StatusOr<Combiner> ParseCombiner(absl::string_view name) {
  for (const auto& [known, combiner] : kCombiners) {
    if (name == known) return combiner;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("combiner '", name, "' is not one of sum, mean, sqrtn, max"));
}

absl::Status CheckBags(const Bags& bags, Combiner combiner, int64_t rows) {
  const auto positions = static_cast<int64_t>(bags.unique.size());
  if (bags.row_splits.empty() || bags.row_splits.front() != 0 || bags.row_splits.back() != positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the row splits of bags must begin with 0 and end with their number of positions, ", positions));
  }
  if (!std::is_sorted(bags.row_splits.begin(), bags.row_splits.end())) {
    return absl::InvalidArgumentError("the row splits of bags must ascend");
  }
  for (int64_t p = 0; p < positions; ++p) {
    const int32_t row = bags.unique[static_cast<size_t>(p)];
    if (row < 0 || row >= rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("position ", p, " of the bags has the unique row ", row, ", and there are ", rows));
    }
  }
  if (!bags.weights.empty() && bags.weights.size() != bags.unique.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", bags.weights.size(), " weights for ", positions, " positions of bags"));
  }
  if (!bags.weights.empty() && combiner == Combiner::kMax) {
    return absl::InvalidArgumentError("the combiner max takes no weights");
  }
  return absl::OkStatus();
}

void Pool(const Bags& bags, Combiner combiner, int dim, absl::Span<const float> rows,
          absl::Span<float> pooled) {
  CAIRN_CHECK(static_cast<int64_t>(pooled.size()) == bags.size() * dim);
  if (combiner == Combiner::kMax) {
    PoolMaxima(PlainBags(bags), dim, rows.data(), pooled.data());
  } else {
    PoolSums(PlainBags(bags), combiner, dim, rows.data(), pooled.data());
  }
}

void AddPoolGradients(const Bags& bags, Combiner combiner, int dim, const PoolGradients& gradients) {
  CAIRN_CHECK(static_cast<int64_t>(gradients.pooled_gradient.size()) == bags.size() * dim);
  if (combiner == Combiner::kMax) {
    AddMaximumGradients(PlainBags(bags), dim, gradients);
  } else {
    AddSumGradients(PlainBags(bags), combiner, dim, gradients.pooled_gradient.data(),
                    gradients.row_gradients.data());
  }
}

}  // namespace cairn::embedding

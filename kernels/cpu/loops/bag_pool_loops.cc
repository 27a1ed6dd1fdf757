#include "kernels/cpu/loops/bag_pool_loops.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

using Lanes = Floats<CAIRN_LANES>;
using Four = Floats<4>;

// The columns that are processed together.
constexpr int64_t kBlock = 16;

inline __attribute__((always_inline)) float WeightOf(const HostBags& bags, int64_t position) {
  return bags.weights == nullptr ? 1.0f : bags.weights[position];
}
inline __attribute__((always_inline)) const float* RowOf(const HostBags& bags, const HostRows& rows,
                                                         int64_t position) {
  return rows.values + bags.unique[position] * rows.width;
}

// Rows are short: to call memcpy for each takes longer than the copy.
void CopyRows(const HostBags& bags, const HostRows& rows, float* pooled) {
  for (int64_t b = 0; b < bags.bags; ++b, pooled += rows.width) {
    const float* const from = RowOf(bags, rows, bags.splits[b]);
    int64_t j = 0;
    for (; j + CAIRN_LANES <= rows.width; j += CAIRN_LANES) std::memcpy(pooled + j, from + j, sizeof(Lanes));
    for (; j < rows.width; ++j) pooled[j] = from[j];
  }
}

// Pools the columns of a bag from `column` on, as many as `kVectors` vectors have. The sums stay in registers.
template <typename Vector, int kVectors>
inline __attribute__((always_inline)) void PoolColumns(const HostBags& bags, const HostRows& rows,
                                                       int64_t bag, float scale, int64_t column,
                                                       float* pooled) {
  Vector sums[kVectors] = {};
  for (int64_t p = bags.splits[bag]; p < bags.splits[bag + 1]; ++p) {
    const float weight = WeightOf(bags, p);
    Vector values[kVectors];
    std::memcpy(values, RowOf(bags, rows, p) + column, sizeof(values));
    for (int i = 0; i < kVectors; ++i) sums[i] += weight * values[i];
  }
  for (Vector& sum : sums) sum *= scale;
  std::memcpy(pooled + column, sums, sizeof(sums));
}

void PoolSums(const HostBags& bags, const HostRows& rows, float* pooled) {
  for (int64_t b = 0; b < bags.bags; ++b, pooled += rows.width) {
    const float scale = BagScale(bags.combiner, bags.weights, bags.splits[b], bags.splits[b + 1]);
    int64_t column = 0;
    for (; column + kBlock <= rows.width; column += kBlock) {
      PoolColumns<Lanes, kBlock / CAIRN_LANES>(bags, rows, b, scale, column, pooled);
    }
    for (; column + 4 <= rows.width; column += 4) PoolColumns<Four, 1>(bags, rows, b, scale, column, pooled);
    for (; column < rows.width; ++column) PoolColumns<float, 1>(bags, rows, b, scale, column, pooled);
  }
}

// The maxima of some columns of a bag that is not empty, and the rows that have them.
struct Maxima {
  float largest[kBlock];
  int32_t row_of[kBlock];
};

inline __attribute__((always_inline)) void FindMaxima(const HostBags& bags, const HostRows& rows, int64_t bag,
                                                      int64_t column, int64_t columns, Maxima& maxima) {
  for (int64_t p = bags.splits[bag]; p < bags.splits[bag + 1]; ++p) {
    const bool first = p == bags.splits[bag];
    const int32_t row = bags.unique[p];
    const float* const x = RowOf(bags, rows, p) + column;
    for (int64_t j = 0; j < columns; ++j) {
      const bool is_new = first || IsNewMaximum(x[j], maxima.largest[j]);
      maxima.row_of[j] = is_new ? row : maxima.row_of[j];
      maxima.largest[j] = is_new ? x[j] : maxima.largest[j];
    }
  }
}

void PoolMaxima(const HostBags& bags, const HostRows& rows, float* pooled) {
  for (int64_t b = 0; b < bags.bags; ++b, pooled += rows.width) {
    for (int64_t column = 0; column < rows.width; column += kBlock) {
      const int64_t columns = rows.width - column < kBlock ? rows.width - column : kBlock;
      Maxima maxima = {};
      FindMaxima(bags, rows, b, column, columns, maxima);
      for (int64_t j = 0; j < columns; ++j) pooled[column + j] = maxima.largest[j];
    }
  }
}

void Pool(const HostBags& bags, const HostRows& rows, float* pooled) {
  if (bags.combiner == Combiner::kNone) return CopyRows(bags, rows, pooled);
  if (bags.combiner == Combiner::kMax) return PoolMaxima(bags, rows, pooled);
  PoolSums(bags, rows, pooled);
}

template <typename Vector>
inline __attribute__((always_inline)) void AddProduct(float factor, const float* from, float* to) {
  Vector g, sum;
  std::memcpy(&g, from, sizeof(g));
  std::memcpy(&sum, to, sizeof(sum));
  sum += factor * g;
  std::memcpy(to, &sum, sizeof(sum));
}

// Rows of less than a vector, whose loops over columns are unrolled.
template <int kWidth>
void AddNarrowGradients(const HostBags& bags, const float* dpooled, float* dvalues) {
  for (int64_t b = 0; b < bags.bags; ++b, dpooled += kWidth) {
    const float scale = BagScale(bags.combiner, bags.weights, bags.splits[b], bags.splits[b + 1]);
    for (int64_t p = bags.splits[b]; p < bags.splits[b + 1]; ++p) {
      const float factor = WeightOf(bags, p) * scale;
      for (int j = 0; j < kWidth; ++j) dvalues[bags.unique[p] * int64_t{kWidth} + j] += factor * dpooled[j];
    }
  }
}

void AddSumGradients(const HostBags& bags, int64_t width, const float* dpooled, float* dvalues) {
  if (width == 1) return AddNarrowGradients<1>(bags, dpooled, dvalues);
  if (width == 2) return AddNarrowGradients<2>(bags, dpooled, dvalues);
  if (width == 3) return AddNarrowGradients<3>(bags, dpooled, dvalues);
  for (int64_t b = 0; b < bags.bags; ++b, dpooled += width) {
    const float scale = BagScale(bags.combiner, bags.weights, bags.splits[b], bags.splits[b + 1]);
    for (int64_t p = bags.splits[b]; p < bags.splits[b + 1]; ++p) {
      float* const to = dvalues + bags.unique[p] * width;
      const float factor = WeightOf(bags, p) * scale;
      int64_t j = 0;
      for (; j + CAIRN_LANES <= width; j += CAIRN_LANES) AddProduct<Lanes>(factor, dpooled + j, to + j);
      for (; j + 4 <= width; j += 4) AddProduct<Four>(factor, dpooled + j, to + j);
      for (; j < width; ++j) to[j] += factor * dpooled[j];
    }
  }
}

void AddMaximumGradients(const HostBags& bags, const HostRows& rows, const float* dpooled, float* dvalues) {
  for (int64_t b = 0; b < bags.bags; ++b, dpooled += rows.width) {
    if (bags.splits[b] == bags.splits[b + 1]) continue;
    for (int64_t column = 0; column < rows.width; column += kBlock) {
      const int64_t columns = rows.width - column < kBlock ? rows.width - column : kBlock;
      Maxima maxima = {};
      FindMaxima(bags, rows, b, column, columns, maxima);
      for (int64_t j = 0; j < columns; ++j) {
        dvalues[maxima.row_of[j] * rows.width + column + j] += dpooled[column + j];
      }
    }
  }
}

void AddGradients(const HostBags& bags, const HostRows& rows, const float* dpooled, float* dvalues) {
  if (bags.combiner == Combiner::kMax) return AddMaximumGradients(bags, rows, dpooled, dvalues);
  AddSumGradients(bags, rows.width, dpooled, dvalues);
}

}  // namespace

BagPoolCode BagPoolLoops() {
  return {.pool = Pool, .add_gradients = AddGradients};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA

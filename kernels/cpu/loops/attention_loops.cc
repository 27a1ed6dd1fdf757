#include "kernels/cpu/loops/attention_loops.h"

#include "kernels/cpu/loops/vector_math.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

using Lanes = Floats<CAIRN_LANES>;

// A tile of c that stays in registers.
constexpr int kTileRows = 6, kTileVectors = CAIRN_LANES == 16 ? 4 : 2;

template <int kRows, int kVectors, bool kTransposed>
inline __attribute__((always_inline)) void MultiplyTile(const BlockProduct& product, int64_t row,
                                                        int64_t column) {
  const int64_t a_row = kTransposed ? 1 : product.a_row, a_step = kTransposed ? product.a_row : 1;
  const float* a = product.a + row * a_row;
  const float* b = product.b + column;
  float* const c = product.c + row * product.c_row + column;
  Lanes sums[kRows][kVectors] = {};
  if (product.add) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) Load(c + i * product.c_row + j * CAIRN_LANES, sums[i][j]);
    }
  }
  for (int64_t k = 0; k < product.k; ++k, a += a_step, b += product.b_row) {
    Lanes of_b[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Load(b + j * CAIRN_LANES, of_b[j]);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += a[i * a_row] * of_b[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) Store(sums[i][j], c + i * product.c_row + j * CAIRN_LANES);
  }
}

template <int kRows, bool kTransposed>
void MultiplyRows(const BlockProduct& product, int64_t row) {
  int64_t column = 0;
  for (; column + kTileVectors * CAIRN_LANES <= product.n; column += kTileVectors * CAIRN_LANES)
    MultiplyTile<kRows, kTileVectors, kTransposed>(product, row, column);
  for (; column < product.n; column += CAIRN_LANES) MultiplyTile<kRows, 1, kTransposed>(product, row, column);
}

template <bool kTransposed>
void MultiplyBlock(const BlockProduct& product) {
  int64_t row = 0;
  for (; row + kTileRows <= product.m; row += kTileRows) MultiplyRows<kTileRows, kTransposed>(product, row);
  for (; row + 2 <= product.m; row += 2) MultiplyRows<2, kTransposed>(product, row);
  for (; row < product.m; ++row) MultiplyRows<1, kTransposed>(product, row);
}

void Multiply(const BlockProduct& product) {
  product.transposed ? MultiplyBlock<true>(product) : MultiplyBlock<false>(product);
}

void Softmax(float* scores, int64_t keys, int64_t queries, float* largest, float* sum, float* factor) {
  for (int64_t query = 0; query < queries; query += CAIRN_LANES) {
    Lanes before, most, scale, total;
    Load(largest + query, before);
    most = before;
    for (int64_t key = 0; key < keys; ++key) {
      Lanes score;
      Load(scores + key * queries + query, score);
      most = score > most ? score : most;  // a NaN makes the sum NaN
    }
    Exp<CAIRN_LANES>(before - most, scale);
    Load(sum + query, total);
    total *= scale;
    for (int64_t key = 0; key < keys; ++key) {
      Lanes score, weight;
      Load(scores + key * queries + query, score);
      Exp<CAIRN_LANES>(score - most, weight);
      Store(weight, scores + key * queries + query);
      total += weight;
    }
    Store(most, largest + query);
    Store(scale, factor + query);
    Store(total, sum + query);
  }
}

void Rescale(float* values, int64_t rows, int64_t queries, const float* factor) {
  for (int64_t query = 0; query < queries; query += CAIRN_LANES) {
    Lanes scale;
    Load(factor + query, scale);
    for (int64_t row = 0; row < rows; ++row) {
      Lanes value;
      Load(values + row * queries + query, value);
      Store(value * scale, values + row * queries + query);
    }
  }
}

void Probabilities(float* scores, int64_t keys, int64_t queries, const float* largest, const float* factor) {
  for (int64_t query = 0; query < queries; query += CAIRN_LANES) {
    Lanes most, scale;
    Load(largest + query, most);
    Load(factor + query, scale);
    for (int64_t key = 0; key < keys; ++key) {
      Lanes score, weight;
      Load(scores + key * queries + query, score);
      Exp<CAIRN_LANES>(score - most, weight);
      Store(weight * scale, scores + key * queries + query);
    }
  }
}

void ScoreGradients(const float* p, float* dp, int64_t keys, int64_t queries, const float* delta) {
  for (int64_t query = 0; query < queries; query += CAIRN_LANES) {
    Lanes mean;
    Load(delta + query, mean);
    for (int64_t key = 0; key < keys; ++key) {
      Lanes weight, gradient;
      Load(p + key * queries + query, weight);
      Load(dp + key * queries + query, gradient);
      Store(weight * (gradient - mean), dp + key * queries + query);
    }
  }
}

void Drop(const float* values, const float* kept, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += CAIRN_LANES) {
    Lanes value, factor;
    Load(values + i, value);
    Load(kept + i, factor);
    const Lanes dropped = factor == 0.0f ? Lanes{} : value * factor;
    Store(dropped, to + i);
  }
}

}  // namespace

AttentionCode AttentionLoops() {
  return {.lanes = CAIRN_LANES,
          .multiply = Multiply,
          .softmax = Softmax,
          .rescale = Rescale,
          .probabilities = Probabilities,
          .score_gradients = ScoreGradients,
          .drop = Drop};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA

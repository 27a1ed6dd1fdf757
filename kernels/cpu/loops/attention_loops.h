// The loops of attention over a block of keys and a block of queries, compiled for each instruction set.
// Adjacent lanes are adjacent queries: a block of scores is [keys][queries], where `queries` is a multiple of
// `lanes`, and a maximum or sum over the keys is one of whole vectors.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu {

// c [m, n] = a b or, with `add`, c += a b. n is a multiple of the lanes.
struct BlockProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;  // [m, k] or, with `transposed`, [k, m]
  int64_t a_row = 0;         // the distance of rows as stored, in floats
  bool transposed = false;
  const float* b = nullptr;  // [k, n]
  int64_t b_row = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
};

struct AttentionCode {
  int64_t lanes;
  void (*multiply)(const BlockProduct& product);
  // A step of the online softmax: raises `largest` [queries] to the largest score, replaces the scores by
  // exp(score - largest), and adds them to `sum` [queries], which like all earlier sums must be multiplied by
  // `factor` [queries].
  void (*softmax)(float* scores, int64_t keys, int64_t queries, float* largest, float* sum, float* factor);
  // values [rows][queries] *= factor [queries]
  void (*rescale)(float* values, int64_t rows, int64_t queries, const float* factor);
  // scores = exp(scores - largest) * factor
  void (*probabilities)(float* scores, int64_t keys, int64_t queries, const float* largest,
                        const float* factor);
  // dp = p (dp - delta): the gradient of the scores
  void (*score_gradients)(const float* p, float* dp, int64_t keys, int64_t queries, const float* delta);
  // to = values * kept where `kept` is not 0, otherwise 0. `count` is a multiple of the lanes.
  void (*drop)(const float* values, const float* kept, int64_t count, float* to);
};

namespace avx512 {
AttentionCode AttentionLoops();
}
namespace avx2 {
AttentionCode AttentionLoops();
}
namespace portable {
AttentionCode AttentionLoops();
}

}  // namespace cairn::kernels::cpu

// Scaled dot-product attention: its contract, and what the backends share.
//
// Softmax weights are computed block by block, and again in the backward pass (Dao, "FlashAttention-2", 2023),
// so no memory has one element for each pair of a query and a key.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/core/host_device.h"
#include "kernels/device.h"

namespace cairn::kernels {

// y = softmax(scale q k^T) v, for each example and head. q is [batch, queries, heads, width], k [batch, keys,
// key_heads, width], v [batch, keys, key_heads, value_width], and y [batch, queries, heads, value_width], all
// row-major. Adjacent heads share the keys and values of a key head.
//
// With width 0 the scores are given: q has them in place of q k^T, [batch, queries, heads, keys], and there is no k.
struct AttentionParams {
  int64_t batch = 0, queries = 0, keys = 0;
  int64_t heads = 0, key_heads = 0;  // key_heads divides heads
  int64_t width = 0, value_width = 0;
  ElementType type = ElementType::kFloat32;  // of q, k, v and y; masks are float32
  float scale = 1;
  bool causal = false;  // query i sees the keys 0 to first_query + i (AttentionInputs)
  // Dropout of the softmax weights [batch, heads, queries, keys] in training: the choice of Dropout with this
  // rate and stream (ops.h).
  float dropout = 0;
  uint64_t stream = 0;
};

// The score of a key that a query does not see, in place of the scaled product. A query that sees no key
// gives all keys the same weight, as in Keras.
inline constexpr float kMaskedScore = -1e9f;

struct AttentionInputs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  // Null, or 0 for what is not seen: queries that see no key [batch, queries], keys [batch, keys], pairs
  // [batch, queries, keys].
  const float* query_mask = nullptr;
  const float* key_mask = nullptr;
  const float* mask = nullptr;
  // The position of query 0 among the keys, for queries that continue a sequence. Backward() requires 0.
  int64_t first_query = 0;
};

class Attention {
 public:
  virtual ~Attention() = default;
  // Stores each row's normalization for the next Backward.
  virtual absl::Status Forward(const AttentionInputs& inputs, bool training, float* y) = 0;
  // The gradients of the last Forward, in the shapes of q, k and v; no dk if the scores are given.
  virtual absl::Status Backward(const AttentionInputs& inputs, const float* y, const float* dy, float* dq,
                                float* dk, float* dv) = 0;
};

// INVALID_ARGUMENT for extents below 1 (a width below 0), heads that are no multiple of key_heads, and a dropout
// outside [0, 1).
absl::Status Validate(const AttentionParams& params);

// Whether the query sees the key of an example.
CAIRN_HOST_DEVICE inline bool Sees(const AttentionParams& params, const AttentionInputs& inputs,
                                   int64_t example, int64_t query, int64_t key) {
  if (params.causal && key > inputs.first_query + query) return false;
  if (inputs.key_mask != nullptr && inputs.key_mask[example * params.keys + key] == 0) return false;
  const int64_t row = example * params.queries + query;
  if (inputs.query_mask != nullptr && inputs.query_mask[row] == 0) return false;
  return inputs.mask == nullptr || inputs.mask[row * params.keys + key] != 0;
}

// How many keys, from key 0 on, the queries [begin, end) of an example must visit. With `causal` these are the keys up
// to the position of the last query, unless a query of the range sees no key: it gives all keys the same weight, so all
// are visited.
CAIRN_HOST_DEVICE inline int64_t KeysOf(const AttentionParams& params, const AttentionInputs& inputs,
                                        int64_t example, int64_t begin, int64_t end) {
  const int64_t end_key = inputs.first_query + end;
  if (!params.causal || end_key >= params.keys) return params.keys;
  const bool masked = inputs.query_mask != nullptr || inputs.key_mask != nullptr || inputs.mask != nullptr;
  for (int64_t query = begin; masked && query < end; ++query) {
    const int64_t last = inputs.first_query + query;
    int64_t key = 0;
    while (key <= last && !Sees(params, inputs, example, query, key)) ++key;
    if (key > last) return params.keys;
  }
  return end_key;
}

}  // namespace cairn::kernels

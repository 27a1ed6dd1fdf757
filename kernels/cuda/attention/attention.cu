// Attention: a warp for each query, and in the backward pass also a warp for each key. Lanes first share 32
// scores, then the elements of a row.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

constexpr int kWarps = 4;  // of a block

// The rows of one head within [batch, rows, heads, width].
template <typename T>
struct HeadRows {
  T* first;
  int64_t step, width;
  __device__ HeadRows(T* x, int64_t example, int64_t rows, int64_t head, int64_t heads, int64_t row_width)
      : first(x + (example * rows * heads + head) * row_width), step(heads * row_width), width(row_width) {}
  __device__ T* at(int64_t row) const { return first + row * step; }
};

template <typename T>
__device__ HeadRows<T> OfQueries(T* x, const AttentionParams& params, int64_t example, int64_t head,
                                 int64_t width) {
  return HeadRows<T>(x, example, params.queries, head, params.heads, width);
}
template <typename T>
__device__ HeadRows<T> OfKeys(T* x, const AttentionParams& params, int64_t example, int64_t key_head,
                              int64_t width) {
  return HeadRows<T>(x, example, params.keys, key_head, params.key_heads, width);
}
template <typename T>
__device__ const T* Elements(const float* x) {
  return reinterpret_cast<const T*>(x);
}

// The normalization of a row of softmax weights exp(score - largest) * inverse_sum, and in the backward pass
// the product of its y and dy.
struct RowStatistics {
  float largest, inverse_sum, product;
};

// The dropout of softmax weights.
struct Choice {
  uint64_t threshold = 0;  // a weight is dropped if its random word is below this; 0: no dropout
  float factor = 1;        // the kept weights are multiplied by this
};

// Draws the factors of softmax weights.
struct Dropper {
  Choice choice;
  std::array<uint32_t, 2> key;
  uint64_t first_row;  // the row of the first example's first query

  __device__ Dropper(const Choice& chosen, const AttentionParams& params, const Context::RandomSeed* seed)
      : choice(chosen), key{}, first_row(0) {
    if (choice.threshold == 0) return;
    const uint64_t mixed = seed->seed ^ params.stream;
    key = {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
    first_row = seed->first_example * static_cast<uint64_t>(params.heads * params.queries);
  }
  // `row` of [batch, heads, queries].
  __device__ float Factor(const AttentionParams& params, int64_t row, int64_t key_index) const {
    if (choice.threshold == 0) return 1;
    const uint64_t place = (first_row + static_cast<uint64_t>(row)) * static_cast<uint64_t>(params.keys) +
                           static_cast<uint64_t>(key_index);
    const uint64_t counter = place / 4;
    const auto words =
        Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
    const auto word = static_cast<unsigned>(place % 4);
    const uint32_t drawn = word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
    return drawn >= choice.threshold ? choice.factor : 0.0f;
  }
};

// A weight times the factor of dropout, where 0 selects.
__device__ float Dropped(float value, float factor) {
  return factor == 0 ? 0.0f : value * factor;
}

template <typename T>
__device__ float DotWith(const float* a, const T* b, int64_t width) {
  float sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += a[i] * ToFloat(b[i]);
  return sum;
}

// Copies a row to shared memory of the warp, times `scale`.
template <typename T>
__device__ void LoadRow(const T* row, int64_t width, float scale, float* shared) {
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) shared[i] = ToFloat(row[i]) * scale;
}
template <typename T>
__device__ void StoreRow(const float* shared, int64_t width, float scale, T* row) {
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp) row[i] = FromFloat<T>(shared[i] * scale);
}
// sums [width] = sums * factor + the sum of `count` rows from `first` on, times weights [count].
template <typename T>
__device__ void AddRows(const HeadRows<const T>& rows, int64_t first, int64_t count, const float* weights,
                        float factor, float* sums) {
  for (int64_t i = threadIdx.x % kWarp; i < rows.width; i += kWarp) {
    float sum = sums[i] * factor;
    for (int64_t row = 0; row < count; ++row) sum += weights[row] * ToFloat(rows.at(first + row)[i]);
    sums[i] = sum;
  }
}

// The rows of given scores, [batch, queries, heads, keys].
template <typename T>
__device__ HeadRows<T> OfScores(T* q, const AttentionParams& params, int64_t example, int64_t head) {
  return OfQueries(q, params, example, head, params.keys);
}
// The score of a query and a key: the given one, or the product of their rows `a` and `b`, of which one is scaled.
template <typename T>
__device__ float ScoreOf(const AttentionParams& params, const HeadRows<const T>& given, int64_t query,
                         int64_t key, const float* a, const T* b) {
  if (params.width == 0) return ToFloat(given.at(query)[key]) * params.scale;
  return DotWith(a, b, params.width);
}

// y and statistics [batch, heads, queries]. A warp for each row of these, grid-strided; shared memory: for
// each warp its query, the sums of y, and 32 weights. The first thread copies the seed to `kept_seed`, unless
// that is null. Deterministic.
template <typename T>
__global__ void AttendForward(AttentionParams params, AttentionInputs inputs, Choice choice,
                              const Context::RandomSeed* seed, Context::RandomSeed* kept_seed,
                              RowStatistics* statistics, T* y) {
  CAIRN_DYNAMIC_SHARED(float, shared);
  const int64_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const q = shared + warp * (params.width + params.value_width + kWarp);
  float* const sums = q + params.width;
  float* const weights = sums + params.value_width;
  if (kept_seed != nullptr && CAIRN_GLOBAL_THREAD == 0) *kept_seed = *seed;
  const Dropper dropper(choice, params, seed);
  for (int64_t row = blockIdx.x * int64_t{kWarps} + warp; row < params.batch * params.heads * params.queries;
       row += gridDim.x * int64_t{kWarps}) {
    const int64_t query = row % params.queries, head = row / params.queries % params.heads;
    const int64_t example = row / params.queries / params.heads;
    const int64_t key_head = head / (params.heads / params.key_heads);
    const auto k = OfKeys(Elements<T>(inputs.k), params, example, key_head, params.width);
    const auto v = OfKeys(Elements<T>(inputs.v), params, example, key_head, params.value_width);
    const auto queries = OfQueries(Elements<T>(inputs.q), params, example, head, params.width);
    const auto given = OfScores(Elements<T>(inputs.q), params, example, head);
    LoadRow(queries.at(query), params.width, params.scale, q);
    for (int64_t i = lane; i < params.value_width; i += kWarp) sums[i] = 0;
    __syncwarp();
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
    const int64_t keys = KeysOf(params, inputs, example, query, query + 1);
    for (int64_t first = 0; first < keys; first += kWarp) {
      const int64_t key = first + lane;
      float score = -std::numeric_limits<float>::infinity();
      if (key < keys)
        score = Sees(params, inputs, example, query, key) ? ScoreOf(params, given, query, key, q, k.at(key))
                                                          : kMaskedScore;
      const float before = largest;
      largest = fmaxf(largest, ReduceLanes(kWarp, score, Largest()));
      const float weight = key < keys ? std::exp(score - largest) : 0.0f, factor = std::exp(before - largest);
      sum = sum * factor + ReduceLanes(kWarp, weight, Sum());
      weights[lane] = key < keys ? Dropped(weight, dropper.Factor(params, row, key)) : 0.0f;
      __syncwarp();
      AddRows(v, first, keys - first < kWarp ? keys - first : int64_t{kWarp}, weights, factor, sums);
      __syncwarp();
    }
    if (lane == 0) statistics[row] = {largest, 1.0f / sum, 0};
    const auto outputs = OfQueries(y, params, example, head, params.value_width);
    StoreRow(sums, params.value_width, 1.0f / sum, outputs.at(query));
    __syncwarp();
  }
}

// dq, or the gradients of given scores, and the products of the statistics. As above; shared memory: for each warp
// its query, its dy, the sums of dq, and 32 gradients of scores. Deterministic.
template <typename T>
__global__ void DifferentiateQueries(AttentionParams params, AttentionInputs inputs, Choice choice,
                                     const Context::RandomSeed* seed, RowStatistics* statistics, const T* y,
                                     const T* dy, T* dq) {
  CAIRN_DYNAMIC_SHARED(float, shared);
  const int64_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const q = shared + warp * (2 * params.width + params.value_width + kWarp);
  float* const sums = q + params.width;
  float* const gradient = sums + params.width;
  float* const score_gradients = gradient + params.value_width;
  const Dropper dropper(choice, params, seed);
  for (int64_t row = blockIdx.x * int64_t{kWarps} + warp; row < params.batch * params.heads * params.queries;
       row += gridDim.x * int64_t{kWarps}) {
    const int64_t query = row % params.queries, head = row / params.queries % params.heads;
    const int64_t example = row / params.queries / params.heads;
    const int64_t key_head = head / (params.heads / params.key_heads);
    const auto k = OfKeys(Elements<T>(inputs.k), params, example, key_head, params.width);
    const auto v = OfKeys(Elements<T>(inputs.v), params, example, key_head, params.value_width);
    const auto queries = OfQueries(Elements<T>(inputs.q), params, example, head, params.width);
    const auto given = OfScores(Elements<T>(inputs.q), params, example, head);
    T* const given_gradients = OfScores(dq, params, example, head).at(query);
    const auto outputs = OfQueries(y, params, example, head, params.value_width);
    const auto gradients = OfQueries(dy, params, example, head, params.value_width);
    LoadRow(queries.at(query), params.width, params.scale, q);
    LoadRow(gradients.at(query), params.value_width, 1, gradient);
    for (int64_t i = lane; i < params.width; i += kWarp) sums[i] = 0;
    __syncwarp();
    float product = 0;
    for (int64_t i = lane; i < params.value_width; i += kWarp)
      product += gradient[i] * ToFloat(outputs.at(query)[i]);
    product = ReduceLanes(kWarp, product, Sum());
    if (lane == 0) statistics[row].product = product;
    const RowStatistics s = statistics[row];
    const int64_t keys = KeysOf(params, inputs, example, query, query + 1);
    for (int64_t first = 0; first < keys; first += kWarp) {
      const int64_t key = first + lane;
      float of_score = 0;  // also for a score that is masked, which is a constant
      if (key < keys && Sees(params, inputs, example, query, key)) {
        const float weight =
            std::exp(ScoreOf(params, given, query, key, q, k.at(key)) - s.largest) * s.inverse_sum;
        const float of_weight =
            Dropped(DotWith(gradient, v.at(key), params.value_width), dropper.Factor(params, row, key));
        of_score = weight * (of_weight - product);
      }
      score_gradients[lane] = of_score;
      if (params.width == 0 && key < keys) given_gradients[key] = FromFloat<T>(of_score * params.scale);
      __syncwarp();
      AddRows(k, first, keys - first < kWarp ? keys - first : int64_t{kWarp}, score_gradients, 1, sums);
      __syncwarp();
    }
    for (int64_t key = keys + lane; params.width == 0 && key < params.keys; key += kWarp)
      given_gradients[key] = FromFloat<T>(0.0f);
    const auto query_gradients = OfQueries(dq, params, example, head, params.width);
    StoreRow(sums, params.width, params.scale, query_gradients.at(query));
    __syncwarp();
  }
}

// The first query to visit, a multiple of kWarp. With `causal`, earlier queries do not see the key. With a mask, a
// query may see no key and then weighs all keys equally, so all queries are visited.
__device__ int64_t FirstQuery(const AttentionParams& params, const AttentionInputs& inputs, int64_t key) {
  const bool masked = inputs.query_mask != nullptr || inputs.key_mask != nullptr || inputs.mask != nullptr;
  return params.causal && !masked ? key / kWarp * kWarp : 0;
}

// dk and dv. A warp for each key of [batch, key_heads, keys], grid-strided; shared memory: for each warp its
// key and value, the sums of dk and dv, and 32 weights and gradients of scores. Deterministic.
template <typename T>
__global__ void DifferentiateKeys(AttentionParams params, AttentionInputs inputs, Choice choice,
                                  const Context::RandomSeed* seed, const RowStatistics* statistics,
                                  const T* dy, T* dk, T* dv) {
  CAIRN_DYNAMIC_SHARED(float, shared);
  const int64_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const k = shared + warp * 2 * (params.width + params.value_width + kWarp);
  float* const v = k + params.width;
  float* const k_sums = v + params.value_width;
  float* const v_sums = k_sums + params.width;
  float* const weights = v_sums + params.value_width;
  float* const score_gradients = weights + kWarp;
  const Dropper dropper(choice, params, seed);
  const int64_t group = params.heads / params.key_heads;
  for (int64_t row = blockIdx.x * int64_t{kWarps} + warp; row < params.batch * params.key_heads * params.keys;
       row += gridDim.x * int64_t{kWarps}) {
    const int64_t key = row % params.keys, key_head = row / params.keys % params.key_heads;
    const int64_t example = row / params.keys / params.key_heads;
    const auto keys = OfKeys(Elements<T>(inputs.k), params, example, key_head, params.width);
    const auto values = OfKeys(Elements<T>(inputs.v), params, example, key_head, params.value_width);
    LoadRow(keys.at(key), params.width, params.scale, k);
    LoadRow(values.at(key), params.value_width, 1, v);
    for (int64_t i = lane; i < params.width + params.value_width; i += kWarp) k_sums[i] = 0;  // and v_sums
    __syncwarp();
    const int64_t first_query = FirstQuery(params, inputs, key);
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const auto queries = OfQueries(Elements<T>(inputs.q), params, example, head, params.width);
      const auto given = OfScores(Elements<T>(inputs.q), params, example, head);
      const auto gradients = OfQueries(dy, params, example, head, params.value_width);
      for (int64_t first = first_query; first < params.queries; first += kWarp) {
        const int64_t query = first + lane;
        float weight = 0, of_score = 0;
        if (query < params.queries) {
          const int64_t statistics_row = (example * params.heads + head) * params.queries + query;
          const RowStatistics s = statistics[statistics_row];
          const bool sees = Sees(params, inputs, example, query, key);
          const float score = sees ? ScoreOf(params, given, query, key, k, queries.at(query)) : kMaskedScore;
          const float factor = dropper.Factor(params, statistics_row, key);
          const float undropped = std::exp(score - s.largest) * s.inverse_sum;
          weight = Dropped(undropped, factor);
          if (sees) {
            const float of_weight = Dropped(DotWith(v, gradients.at(query), params.value_width), factor);
            of_score = undropped * (of_weight - s.product);
          }
        }
        weights[lane] = weight;
        score_gradients[lane] = of_score;
        __syncwarp();
        const int64_t count = params.queries - first < kWarp ? params.queries - first : int64_t{kWarp};
        AddRows(queries, first, count, score_gradients, 1, k_sums);
        AddRows(gradients, first, count, weights, 1, v_sums);
        __syncwarp();
      }
    }
    const auto key_gradients = OfKeys(dk, params, example, key_head, params.width);
    const auto value_gradients = OfKeys(dv, params, example, key_head, params.value_width);
    StoreRow(k_sums, params.width, params.scale, key_gradients.at(key));
    StoreRow(v_sums, params.value_width, 1, value_gradients.at(key));
    __syncwarp();
  }
}

template <typename T>
class CudaAttention final : public Attention {
 public:
  CudaAttention(Context& context, const AttentionParams& params) : context_(context), params_(params) {}

  absl::Status Allocate() {
    constexpr int64_t kFloats = sizeof(RowStatistics) / sizeof(float);
    CAIRN_ASSIGN_OR_RETURN(statistics_, context_.Allocate(rows() * kFloats, "attention: statistics"));
    if (params_.dropout == 0) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(next_seed_, context_.Seed());
    CAIRN_ASSIGN_OR_RETURN(seed_,
                           context_.Allocate(sizeof(Context::RandomSeed) / sizeof(float), "attention: seed"));
    return absl::OkStatus();
  }

  absl::Status Forward(const AttentionInputs& inputs, bool training, float* y) override {
    choice_ = Choice();
    if (training && params_.dropout > 0) {
      choice_ = {.threshold = static_cast<uint64_t>(static_cast<double>(params_.dropout) * 0x1p32),
                 .factor = 1.0f / (1.0f - params_.dropout)};
    }
    return CAIRN_LAUNCH(AttendForward<T>, GridFor(rows(), kWarps), kWarps * kWarp,
                        SharedBytes(params_.width + params_.value_width + kWarp), context_.stream(), params_,
                        inputs, choice_, next_seed_, seed(), statistics(), As<T>(y));
  }

  absl::Status Backward(const AttentionInputs& inputs, const float* y, const float* dy, float* dq, float* dk,
                        float* dv) override {
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(DifferentiateQueries<T>, GridFor(rows(), kWarps), kWarps * kWarp,
                                       SharedBytes(2 * params_.width + params_.value_width + kWarp),
                                       context_.stream(), params_, inputs, choice_, seed(), statistics(),
                                       As<T>(y), As<T>(dy), As<T>(dq)));
    return CAIRN_LAUNCH(DifferentiateKeys<T>,
                        GridFor(params_.batch * params_.key_heads * params_.keys, kWarps), kWarps * kWarp,
                        SharedBytes(2 * (params_.width + params_.value_width + kWarp)), context_.stream(),
                        params_, inputs, choice_, seed(), statistics(), As<T>(dy), As<T>(dk), As<T>(dv));
  }

  // The shared memory of a block, given the floats of a warp.
  static constexpr int64_t SharedBytes(int64_t floats) { return kWarps * floats * int64_t{sizeof(float)}; }

 private:
  int64_t rows() const { return params_.batch * params_.heads * params_.queries; }
  RowStatistics* statistics() const { return reinterpret_cast<RowStatistics*>(statistics_->data()); }
  Context::RandomSeed* seed() const {
    return seed_ == nullptr ? nullptr : reinterpret_cast<Context::RandomSeed*>(seed_->data());
  }

  Context& context_;
  const AttentionParams params_;
  Choice choice_;                                   // of the last Forward()
  std::unique_ptr<DeviceMemory> statistics_;        // [batch, heads, queries]
  const Context::RandomSeed* next_seed_ = nullptr;  // the seed of the next Forward(), in the context
  std::unique_ptr<DeviceMemory> seed_;              // the seed of the last Forward(); null without dropout
};

}  // namespace

absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(Context& context, const AttentionParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  constexpr int64_t kMaxSharedBytes = 48 << 10,
                    kMaxWidths = kMaxSharedBytes / (kWarps * 2 * sizeof(float)) - kWarp;
  if (params.width + params.value_width > kMaxWidths) {
    return absl::UnimplementedError(absl::StrCat("attention over heads of ", params.width, " and ",
                                                 params.value_width, " elements: a GPU takes at most ",
                                                 kMaxWidths, " together"));
  }
  return VisitType(params.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<Attention>> {
    auto op = std::make_unique<CudaAttention<std::remove_pointer_t<decltype(p)>>>(context, params);
    CAIRN_RETURN_IF_ERROR(op->Allocate());
    return op;
  });
}

}  // namespace cairn::kernels::cuda

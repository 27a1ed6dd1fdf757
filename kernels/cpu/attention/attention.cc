// Attention, block by block: a block of queries against all blocks of keys. In registers and caches a block
// of queries is transposed, so that adjacent lanes are adjacent queries (loops/attention_loops.h); keys and
// values are read as they are.
#include "kernels/attention.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cpu/loops/attention_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// The sizes of blocks: for a width of 64, a block of scores and its operands fit in 128 KiB of the second
// cache.
constexpr int64_t kQueries = 64, kKeys = 96;

// Queries of one head of one example.
struct QueryBlock {
  int64_t example, head, first, count;
  int64_t columns;  // count, rounded up to whole vectors
  int64_t keys;     // the number of keys to visit
};

// The rows of one head within [batch, rows, heads, width].
template <typename Float>
struct HeadRows {
  Float* first;
  int64_t step, width;
  Float* at(int64_t row) const { return first + row * step; }
};
template <typename Float>
HeadRows<Float> RowsOf(Float* x, int64_t example, int64_t rows, int64_t head, int64_t heads, int64_t width) {
  return {.first = x + (example * rows * heads + head) * width, .step = heads * width, .width = width};
}

// to [width][columns] = rows [first, first + count) transposed, times scale; 0 in further columns.
void Transpose(const HeadRows<const float>& rows, const QueryBlock& block, float scale, float* to) {
  if (block.count < block.columns) std::fill_n(to, rows.width * block.columns, 0.0f);
  for (int64_t i = 0; i < block.count; ++i) {
    const float* const from = rows.at(block.first + i);
    for (int64_t k = 0; k < rows.width; ++k) to[k * block.columns + i] = from[k] * scale;
  }
}

// The rows of a block, `padded` floats apart and padded with 0, times scale.
void Pack(const HeadRows<const float>& rows, int64_t first, int64_t count, int64_t padded, float scale,
          float* to) {
  for (int64_t i = 0; i < count; ++i, to += padded) {
    const float* const from = rows.at(first + i);
    for (int64_t k = 0; k < rows.width; ++k) to[k] = from[k] * scale;
    std::fill(to + rows.width, to + padded, 0.0f);
  }
}

// Row `first` + i is column i of `from` [width][columns], times factor [column].
void StoreTransposed(const float* from, const QueryBlock& block, const float* factor,
                     const HeadRows<float>& rows) {
  for (int64_t i = 0; i < block.count; ++i) {
    float* const to = rows.at(block.first + i);
    for (int64_t k = 0; k < rows.width; ++k) to[k] = from[k * block.columns + i] * factor[i];
  }
}

class CpuAttention final : public Attention {
 public:
  CpuAttention(onednn::Context& context, const AttentionParams& params)
      : context_(context),
        params_(params),
        width_(Padded(params.width)),
        value_width_(Padded(params.value_width)),
        largest_(static_cast<size_t>(params.batch * params.heads * params.queries)),
        inverse_sum_(largest_.size()),
        workspaces_(static_cast<size_t>(context.threads())) {
    for (Workspace& workspace : workspaces_) Reserve(workspace);
  }

  absl::Status Forward(const AttentionInputs& inputs, bool training, float* y) override {
    drops_ = training && params_.dropout > 0;
    seed_ = context_.seed() ^ params_.stream;
    first_example_ = context_.first_example();
    const int64_t blocks = (params_.queries + kQueries - 1) / kQueries;
    ParallelFor(context_, params_.batch * params_.heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item / blocks;
        ForwardBlock(
            inputs, BlockOf(inputs, head / params_.heads, head % params_.heads, item % blocks * kQueries), y);
      }
    });
    return absl::OkStatus();
  }

  // Each thread computes all gradients of one key head, so that every sum has one order.
  absl::Status Backward(const AttentionInputs& inputs, const float* y, const float* dy, float* dq, float* dk,
                        float* dv) override {
    ParallelFor(context_, params_.batch * params_.key_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item)
        BackwardOfKeyHead(inputs, item / params_.key_heads, item % params_.key_heads, y, dy, dq, dk, dv);
    });
    return absl::OkStatus();
  }

 private:
  // The memory of one thread.
  struct Workspace {
    std::vector<float> q, dy;                 // transposed: [width][columns]
    std::vector<float> q_rows, dy_rows;       // [queries][padded width]
    std::vector<float> k, v;                  // [keys][width]
    std::vector<float> scores, dscores;       // [keys][columns]
    std::vector<float> kept, weights;         // [keys][columns]: the factors of dropout, and weights after it
    std::vector<float> y, dq;                 // transposed
    std::vector<float> dk, dv;                // [all keys][padded width]
    std::vector<float> largest, sum, factor;  // [columns]
  };

  int64_t Padded(int64_t width) const { return (width + code_.lanes - 1) / code_.lanes * code_.lanes; }
  int64_t queries_per_key_head() const { return params_.heads / params_.key_heads; }

  void Reserve(Workspace& workspace) const {
    const auto sized = [](std::vector<float>& buffer, int64_t size) {
      buffer.resize(static_cast<size_t>(size));
    };
    for (auto* buffer : {&workspace.q, &workspace.dq}) sized(*buffer, params_.width * kQueries);
    for (auto* buffer : {&workspace.y, &workspace.dy}) sized(*buffer, params_.value_width * kQueries);
    sized(workspace.q_rows, kQueries * width_);
    sized(workspace.dy_rows, kQueries * value_width_);
    sized(workspace.k, kKeys * params_.width);
    sized(workspace.v, kKeys * params_.value_width);
    for (auto* buffer : {&workspace.scores, &workspace.dscores}) sized(*buffer, kKeys * kQueries);
    if (params_.dropout > 0) {
      for (auto* buffer : {&workspace.kept, &workspace.weights}) sized(*buffer, kKeys * kQueries);
    }
    sized(workspace.dk, params_.keys * width_);
    sized(workspace.dv, params_.keys * value_width_);
    for (auto* buffer : {&workspace.largest, &workspace.sum, &workspace.factor}) sized(*buffer, kQueries);
  }
  Workspace& OfThisThread() { return workspaces_[static_cast<size_t>(omp_get_thread_num())]; }

  QueryBlock BlockOf(const AttentionInputs& inputs, int64_t example, int64_t head, int64_t first) const {
    const int64_t count = std::min(kQueries, params_.queries - first);
    return {.example = example,
            .head = head,
            .first = first,
            .count = count,
            .columns = Padded(count),
            .keys = KeysOf(params_, inputs, example, first, first + count)};
  }
  HeadRows<const float> Queries(const float* x, const QueryBlock& block, int64_t width) const {
    return RowsOf(x, block.example, params_.queries, block.head, params_.heads, width);
  }
  template <typename Float>
  HeadRows<Float> KeyRows(Float* x, int64_t example, int64_t key_head, int64_t width) const {
    return RowsOf(x, example, params_.keys, key_head, params_.key_heads, width);
  }
  size_t StatisticsOf(const QueryBlock& block) const {
    return static_cast<size_t>((block.example * params_.heads + block.head) * params_.queries + block.first);
  }

  // Whether some query of the block does not see some key in [first_key, end_key).
  bool IsMasked(const AttentionInputs& inputs, const QueryBlock& block, int64_t end_key) const {
    return inputs.query_mask != nullptr || inputs.key_mask != nullptr || inputs.mask != nullptr ||
           (params_.causal && end_key - 1 > inputs.first_query + block.first);
  }
  // Sets the values [keys][columns] of pairs that do not see each other.
  void SetUnseen(const AttentionInputs& inputs, const QueryBlock& block, int64_t first_key, int64_t end_key,
                 float value, float* values) const {
    if (!IsMasked(inputs, block, end_key)) return;
    for (int64_t key = first_key; key < end_key; ++key, values += block.columns) {
      for (int64_t i = 0; i < block.count; ++i) {
        if (!Sees(params_, inputs, block.example, block.first + i, key)) values[i] = value;
      }
    }
  }

  // kept [keys][columns]: the factors of the softmax weights, 0 for those that are dropped.
  void ChooseKept(const QueryBlock& block, int64_t first_key, int64_t end_key, float* kept) const {
    const std::array<uint32_t, 2> philox_key = {static_cast<uint32_t>(seed_),
                                                static_cast<uint32_t>(seed_ >> 32)};
    const auto threshold = static_cast<uint64_t>(static_cast<double>(params_.dropout) * 0x1p32);
    const float factor = 1.0f / (1.0f - params_.dropout);
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t row =
          ((first_example_ + block.example) * params_.heads + block.head) * params_.queries + block.first + i;
      for (int64_t key = first_key; key < end_key;) {
        const auto place = static_cast<uint64_t>(row * params_.keys + key), counter = place / 4;
        const auto words = Philox4x32(
            {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, philox_key);
        for (size_t word = place % 4; word < 4 && key < end_key; ++word, ++key)
          kept[(key - first_key) * block.columns + i] = words[word] >= threshold ? factor : 0.0f;
      }
    }
  }

  bool has_scores() const { return params_.width == 0; }
  // The given scores of a block of keys: rows of queries, or their gradients.
  template <typename Float>
  HeadRows<Float> ScoreRows(Float* q, const QueryBlock& block, int64_t first_key, int64_t keys) const {
    HeadRows<Float> rows = RowsOf(q, block.example, params_.queries, block.head, params_.heads, params_.keys);
    rows.first += first_key;
    rows.width = keys;
    return rows;
  }

  // scores [keys][columns] of a block of packed keys, given the scaled queries, or of the given scores.
  void Score(const AttentionInputs& inputs, const QueryBlock& block, int64_t first_key, int64_t end_key,
             Workspace& workspace) const {
    if (has_scores()) {
      Transpose(ScoreRows(inputs.q, block, first_key, end_key - first_key), block, params_.scale,
                workspace.scores.data());
      SetUnseen(inputs, block, first_key, end_key, kMaskedScore, workspace.scores.data());
      return;
    }
    code_.multiply({.m = end_key - first_key,
                    .n = block.columns,
                    .k = params_.width,
                    .a = workspace.k.data(),
                    .a_row = params_.width,
                    .b = workspace.q.data(),
                    .b_row = block.columns,
                    .c = workspace.scores.data(),
                    .c_row = block.columns});
    SetUnseen(inputs, block, first_key, end_key, kMaskedScore, workspace.scores.data());
  }

  void ForwardBlock(const AttentionInputs& inputs, const QueryBlock& block, float* y) {
    Workspace& workspace = OfThisThread();
    const int64_t key_head = block.head / queries_per_key_head();
    const auto k = KeyRows(inputs.k, block.example, key_head, params_.width);
    const auto v = KeyRows(inputs.v, block.example, key_head, params_.value_width);
    Transpose(Queries(inputs.q, block, params_.width), block, params_.scale, workspace.q.data());
    std::fill(workspace.largest.begin(), workspace.largest.end(), -std::numeric_limits<float>::infinity());
    std::fill(workspace.sum.begin(), workspace.sum.end(), 0.0f);
    for (int64_t key = 0; key < block.keys; key += kKeys) {
      const int64_t end = std::min(block.keys, key + kKeys), keys = end - key;
      float* const scores = workspace.scores.data();
      Pack(k, key, keys, params_.width, 1, workspace.k.data());
      Pack(v, key, keys, params_.value_width, 1, workspace.v.data());
      Score(inputs, block, key, end, workspace);
      code_.softmax(scores, keys, block.columns, workspace.largest.data(), workspace.sum.data(),
                    workspace.factor.data());
      if (drops_) {
        ChooseKept(block, key, end, workspace.kept.data());
        code_.drop(scores, workspace.kept.data(), keys * block.columns, scores);
      }
      if (key > 0)
        code_.rescale(workspace.y.data(), params_.value_width, block.columns, workspace.factor.data());
      code_.multiply({.m = params_.value_width,
                      .n = block.columns,
                      .k = keys,
                      .a = workspace.v.data(),
                      .a_row = params_.value_width,
                      .transposed = true,
                      .b = scores,
                      .b_row = block.columns,
                      .c = workspace.y.data(),
                      .c_row = block.columns,
                      .add = key > 0});
    }
    const size_t statistics = StatisticsOf(block);
    for (size_t i = 0; i < static_cast<size_t>(block.count); ++i) {
      largest_[statistics + i] = workspace.largest[i];
      inverse_sum_[statistics + i] = 1.0f / workspace.sum[i];
    }
    StoreTransposed(
        workspace.y.data(), block, inverse_sum_.data() + statistics,
        RowsOf(y, block.example, params_.queries, block.head, params_.heads, params_.value_width));
  }

  void BackwardOfKeyHead(const AttentionInputs& inputs, int64_t example, int64_t key_head, const float* y,
                         const float* dy, float* dq, float* dk, float* dv) {
    Workspace& workspace = OfThisThread();
    std::fill(workspace.dk.begin(), workspace.dk.end(), 0.0f);
    std::fill(workspace.dv.begin(), workspace.dv.end(), 0.0f);
    const int64_t first_head = key_head * queries_per_key_head();
    for (int64_t head = first_head; head < first_head + queries_per_key_head(); ++head) {
      for (int64_t first = 0; first < params_.queries; first += kQueries)
        BackwardBlock(inputs, BlockOf(inputs, example, head, first), y, dy, dq, workspace);
    }
    const auto k_gradients = KeyRows(dk, example, key_head, params_.width);
    const auto v_gradients = KeyRows(dv, example, key_head, params_.value_width);
    for (int64_t key = 0; key < params_.keys; ++key) {
      std::copy_n(workspace.dk.data() + key * width_, params_.width, k_gradients.at(key));
      std::copy_n(workspace.dv.data() + key * value_width_, params_.value_width, v_gradients.at(key));
    }
  }

  // Writes dq of the block, and adds to dk and dv of the workspace. With p = softmax(s) and ds = p (dp -
  // sum_j p_j dp_j), where the sum equals y dy: dq = scale ds k, dk = scale ds^T q, dv = p^T dy.
  void BackwardBlock(const AttentionInputs& inputs, const QueryBlock& block, const float* y, const float* dy,
                     float* dq, Workspace& workspace) {
    const int64_t key_head = block.head / queries_per_key_head();
    const auto q_rows = Queries(inputs.q, block, params_.width);
    const auto dy_rows = Queries(dy, block, params_.value_width),
               y_rows = Queries(y, block, params_.value_width);
    const auto k = KeyRows(inputs.k, block.example, key_head, params_.width);
    const auto v = KeyRows(inputs.v, block.example, key_head, params_.value_width);
    Transpose(q_rows, block, params_.scale, workspace.q.data());
    Transpose(dy_rows, block, 1, workspace.dy.data());
    Pack(q_rows, block.first, block.count, width_, params_.scale, workspace.q_rows.data());
    Pack(dy_rows, block.first, block.count, value_width_, 1, workspace.dy_rows.data());
    LoadStatistics(block, y_rows, dy_rows, workspace);
    for (int64_t key = 0; key < block.keys; key += kKeys) {
      const int64_t end = std::min(block.keys, key + kKeys), keys = end - key;
      Pack(k, key, keys, params_.width, 1, workspace.k.data());
      Pack(v, key, keys, params_.value_width, 1, workspace.v.data());
      ScoreGradients(inputs, block, key, end, workspace);
      if (has_scores()) StoreScoreGradients(block, key, keys, workspace, dq);
      const float* const weights = drops_ ? workspace.weights.data() : workspace.scores.data();
      const auto add_to_keys = [&](const float* of_scores, const std::vector<float>& rows, int64_t width,
                                   std::vector<float>& gradient) {
        code_.multiply({.m = keys,
                        .n = width,
                        .k = block.count,
                        .a = of_scores,
                        .a_row = block.columns,
                        .b = rows.data(),
                        .b_row = width,
                        .c = gradient.data() + key * width,
                        .c_row = width,
                        .add = true});
      };
      add_to_keys(weights, workspace.dy_rows, value_width_, workspace.dv);
      add_to_keys(workspace.dscores.data(), workspace.q_rows, width_, workspace.dk);
      code_.multiply({.m = params_.width,
                      .n = block.columns,
                      .k = keys,
                      .a = workspace.k.data(),
                      .a_row = params_.width,
                      .transposed = true,
                      .b = workspace.dscores.data(),
                      .b_row = block.columns,
                      .c = workspace.dq.data(),
                      .c_row = block.columns,
                      .add = key > 0});
    }
    if (has_scores()) return ClearGradients(block, dq);
    StoreTransposed(workspace.dq.data(), block, scales_.data(),
                    RowsOf(dq, block.example, params_.queries, block.head, params_.heads, params_.width));
  }

  // Writes the gradients of the given scores of a block of keys.
  void StoreScoreGradients(const QueryBlock& block, int64_t first_key, int64_t keys,
                           const Workspace& workspace, float* dq) const {
    StoreTransposed(workspace.dscores.data(), block, scales_.data(), ScoreRows(dq, block, first_key, keys));
  }
  // Clears the gradients of the scores of keys that the block does not visit.
  void ClearGradients(const QueryBlock& block, float* dq) const {
    const auto rows = ScoreRows(dq, block, block.keys, params_.keys - block.keys);
    for (int64_t i = 0; i < block.count; ++i) std::fill_n(rows.at(block.first + i), rows.width, 0.0f);
  }

  // largest, factor (the inverse sum) and sum (y dy) of the block's queries.
  void LoadStatistics(const QueryBlock& block, const HeadRows<const float>& y,
                      const HeadRows<const float>& dy, Workspace& workspace) const {
    const size_t statistics = StatisticsOf(block);
    for (auto* values : {&workspace.largest, &workspace.factor, &workspace.sum})
      std::fill(values->begin(), values->end(), 0.0f);
    for (size_t i = 0; i < static_cast<size_t>(block.count); ++i) {
      const auto row = block.first + static_cast<int64_t>(i);
      workspace.largest[i] = largest_[statistics + i];
      workspace.factor[i] = inverse_sum_[statistics + i];
      for (int64_t k = 0; k < params_.value_width; ++k) workspace.sum[i] += y.at(row)[k] * dy.at(row)[k];
    }
  }

  // Computes the softmax weights (`scores`, and `weights` after dropout) and the gradient of the scores.
  void ScoreGradients(const AttentionInputs& inputs, const QueryBlock& block, int64_t first_key,
                      int64_t end_key, Workspace& workspace) const {
    const int64_t keys = end_key - first_key;
    float* const scores = workspace.scores.data();
    float* const gradients = workspace.dscores.data();
    Score(inputs, block, first_key, end_key, workspace);
    code_.probabilities(scores, keys, block.columns, workspace.largest.data(), workspace.factor.data());
    code_.multiply({.m = keys,
                    .n = block.columns,
                    .k = params_.value_width,
                    .a = workspace.v.data(),
                    .a_row = params_.value_width,
                    .b = workspace.dy.data(),
                    .b_row = block.columns,
                    .c = gradients,
                    .c_row = block.columns});
    if (drops_) {
      const float* const kept = workspace.kept.data();
      ChooseKept(block, first_key, end_key, workspace.kept.data());
      code_.drop(scores, kept, keys * block.columns, workspace.weights.data());
      code_.drop(gradients, kept, keys * block.columns, gradients);
    }
    code_.score_gradients(scores, gradients, keys, block.columns, workspace.sum.data());
    SetUnseen(inputs, block, first_key, end_key, 0, gradients);
  }

  onednn::Context& context_;
  const AttentionParams params_;
  const AttentionCode code_ = CAIRN_BEST_LOOPS(AttentionLoops);
  const int64_t width_, value_width_;  // rounded up to whole vectors
  // [batch, heads, queries] from the last Forward()
  std::vector<float> largest_, inverse_sum_;
  const std::vector<float> scales_ = std::vector<float>(kQueries, params_.scale);  // [query of a block]
  bool drops_ = false;
  uint64_t seed_ = 0;
  int64_t first_example_ = 0;
  std::vector<Workspace> workspaces_;  // [thread]
};

}  // namespace

absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(onednn::Context& context,
                                                         const AttentionParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuAttention>(context, params);
}

}  // namespace cairn::kernels::cpu

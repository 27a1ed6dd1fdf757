// Rows of a table by index. The gradient is dense: rows without an index are 0.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/embedding_errors.h"

namespace cairn::kernels::cpu {
namespace {

// `Index`: the C++ type of the row numbers.
template <typename Index>
class CpuEmbedding final : public LinearOp {
 public:
  CpuEmbedding(onednn::Context& context, const EmbeddingParams& params)
      : context_(context), params_(params), output_({.shape = {params.indices, params.width}}) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* table, const float* /*bias*/, float* y) override {
    const auto* const indices = reinterpret_cast<const Index*>(x);
    for (int64_t i = 0; i < params_.indices; ++i) {
      if (!IsRow(indices[i])) return NotInTable(indices[i], params_.rows);
    }
    const int64_t grain = std::max<int64_t>(1, kElementGrain / params_.width);
    ParallelFor(context_, params_.indices, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(y + i * params_.width, table + Row(indices[i]), RowBytes());
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*table*/, const float* /*y*/, float* dy, float* /*dx*/,
                        float* dtable, float* /*dbias*/) override {
    const auto* const indices = reinterpret_cast<const Index*>(x);
    ParallelFor(context_, params_.rows * params_.width, kElementGrain,
                [&](int64_t begin, int64_t end) { std::fill(dtable + begin, dtable + end, 0.0f); });
    // Threads share columns, not rows, of which some are used much more often.
    constexpr int64_t kFewestColumns = 32;
    const int64_t columns =
        std::max(kFewestColumns, (params_.width + context_.threads() - 1) / context_.threads());
    ParallelFor(context_, params_.width, columns, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < params_.indices; ++i) {
        float* const to = dtable + Row(indices[i]);
        const float* const from = dy + i * params_.width;
        for (int64_t j = begin; j < end; ++j) to[j] += from[j];
      }
    });
    return absl::OkStatus();
  }

 private:
  bool IsRow(Index index) const {
    if constexpr (std::is_same_v<Index, float>) {
      return index >= 0 && index < static_cast<float>(params_.rows);
    } else {
      return int64_t{index} >= 0 && int64_t{index} < params_.rows;
    }
  }
  size_t RowBytes() const { return static_cast<size_t>(params_.width) * sizeof(float); }
  int64_t Row(Index index) const { return static_cast<int64_t>(index) * params_.width; }

  onednn::Context& context_;
  const EmbeddingParams params_;
  const TensorDesc output_;
};

// Means of rows of the table.
class CpuEmbeddingMean final : public LinearOp {
 public:
  explicit CpuEmbeddingMean(const EmbeddingParams& params)
      : params_(params), output_({.shape = {params.indices, params.width}}) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* table, const float* /*bias*/, float* y) override {
    std::fill_n(y, params_.indices * params_.width, 0.0f);
    for (int64_t row = 0; row < params_.indices; ++row) {
      const absl::Span<const int64_t> indices = IndicesOf(x, row);
      float* const to = y + row * params_.width;
      for (const int64_t index : indices) {
        if (index < 0 || index >= params_.rows) return NotInTable(index, params_.rows);
        for (int64_t j = 0; j < params_.width; ++j) to[j] += table[index * params_.width + j];
      }
      if (indices.empty()) continue;
      for (int64_t j = 0; j < params_.width; ++j) to[j] /= static_cast<float>(indices.size());
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*table*/, const float* /*y*/, float* dy, float* /*dx*/,
                        float* dtable, float* /*dbias*/) override {
    std::fill_n(dtable, params_.rows * params_.width, 0.0f);
    for (int64_t row = 0; row < params_.indices; ++row) {
      const absl::Span<const int64_t> indices = IndicesOf(x, row);
      const float* const from = dy + row * params_.width;
      for (const int64_t index : indices) {
        float* const to = dtable + index * params_.width;
        for (int64_t j = 0; j < params_.width; ++j) to[j] += from[j] / static_cast<float>(indices.size());
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Span<const int64_t> IndicesOf(const float* x, int64_t row) const {
    const auto* const splits = reinterpret_cast<const int64_t*>(x);
    return {splits + params_.indices + 1 + splits[row], static_cast<size_t>(splits[row + 1] - splits[row])};
  }

  const EmbeddingParams params_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(onednn::Context& context,
                                                        const EmbeddingParams& params) {
  if (params.indices < 1 || params.rows < 1 || params.width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot look up ", params.indices, " rows in a table [",
                                                   params.rows, ",", params.width, "]"));
  }
  if (params.ragged_mean) return std::make_unique<CpuEmbeddingMean>(params);
  if (!IsInteger(params.index_type)) return std::make_unique<CpuEmbedding<float>>(context, params);
  return WithIntegerType(params.index_type, [&](auto zero) -> std::unique_ptr<LinearOp> {
    return std::make_unique<CpuEmbedding<decltype(zero)>>(context, params);
  });
}

}  // namespace cairn::kernels::cpu

// Rows of a table by index. The gradient is dense: rows without an index are 0.
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels::cpu {
namespace {

class CpuEmbedding final : public LinearOp {
 public:
  explicit CpuEmbedding(const EmbeddingParams& params)
      : params_(params), output_({.shape = {params.indices, params.width}}) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* table, const float* /*bias*/, float* y) override {
    for (int64_t i = 0; i < params_.indices; ++i) {
      if (!(x[i] >= 0 && x[i] < static_cast<float>(params_.rows))) {
        return absl::InvalidArgumentError(absl::StrCat("index ", x[i], " in a table of ", params_.rows,
                                                       " rows: expected 0 to ", params_.rows - 1));
      }
      std::memcpy(y + i * params_.width, table + Row(x[i]), RowBytes());
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* /*table*/, const float* /*y*/, float* dy, float* /*dx*/,
                        float* dtable, float* /*dbias*/) override {
    std::memset(dtable, 0, static_cast<size_t>(params_.rows) * RowBytes());
    for (int64_t i = 0; i < params_.indices; ++i) {
      float* to = dtable + Row(x[i]);
      for (int64_t j = 0; j < params_.width; ++j) to[j] += dy[i * params_.width + j];
    }
    return absl::OkStatus();
  }

 private:
  size_t RowBytes() const { return static_cast<size_t>(params_.width) * sizeof(float); }
  int64_t Row(float index) const { return static_cast<int64_t>(index) * params_.width; }

  const EmbeddingParams params_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(const EmbeddingParams& params) {
  if (params.indices < 1 || params.rows < 1 || params.width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot look up ", params.indices, " rows in a table [",
                                                   params.rows, ",", params.width, "]"));
  }
  return std::make_unique<CpuEmbedding>(params);
}

}  // namespace cairn::kernels::cpu

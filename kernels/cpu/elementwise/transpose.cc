// Copies a tensor with its axes in another order.
#include "kernels/transpose.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// A copy of chunks in the order of the output. The innermost loops run over tiles of the output's last axis and
// of the axis that is innermost in the input, so that both sides use whole cache lines.
class ChunkCopy {
 public:
  explicit ChunkCopy(const TransposePlan& plan) : plan_(plan) {
    if (plan.axes == 0) return;
    last_ = static_cast<size_t>(plan.axes) - 1;
    int64_t distance = 1;
    for (size_t axis = last_ + 1; axis-- > 0; distance *= plan.extents[axis]) {
      distances_[axis] = distance;
      if (axis != last_ && (inner_ == last_ || plan.strides[axis] < plan.strides[inner_])) inner_ = axis;
    }
    inner_tiles_ = (plan.extents[inner_] + kTile - 1) / kTile;
    rows_ = plan.chunks() / plan.extents[last_] / plan.extents[inner_];
  }

  void Run(const onednn::Context& context, const float* from, float* to) const {
    if (plan_.axes == 0) {
      ParallelFor(context, plan_.chunk, kElementGrain,
                  [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
      return;
    }
    const int64_t tile_floats = kTile * plan_.extents[last_] * plan_.chunk;
    ParallelFor(context, rows_ * inner_tiles_, 1 + kElementGrain / tile_floats,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    CopyTile(i / inner_tiles_, i % inner_tiles_, from, to);
                });
  }

 private:
  static constexpr int64_t kTile = 16;

  // Copies kTile indices of the axis inner_ with all indices of the last axis.
  void CopyTile(int64_t row, int64_t tile, const float* from, float* to) const {
    const auto bytes = static_cast<size_t>(plan_.chunk) * sizeof(float);
    for (size_t axis = last_; axis-- > 0;) {
      if (axis == inner_) continue;
      const int64_t index = row % plan_.extents[axis];
      row /= plan_.extents[axis];
      from += index * plan_.strides[axis] * plan_.chunk;
      to += index * distances_[axis] * plan_.chunk;
    }
    const int64_t first = tile * kTile, width = plan_.extents[last_],
                  stride = plan_.strides[last_] * plan_.chunk;
    const int64_t end = std::min(first + kTile, plan_.extents[inner_]);
    for (int64_t begin = 0; begin < width; begin += kTile) {
      const int64_t tile_end = std::min(begin + kTile, width);
      for (int64_t a = first; a < end; ++a) {
        const float* source = from + a * plan_.strides[inner_] * plan_.chunk;
        float* target = to + a * distances_[inner_] * plan_.chunk;
        if (plan_.chunk == 1) {
          for (int64_t b = begin; b < tile_end; ++b) target[b] = source[b * stride];
          continue;
        }
        for (int64_t b = begin; b < tile_end; ++b) {
          std::memcpy(target + b * plan_.chunk, source + b * stride, bytes);
        }
      }
    }
  }

  TransposePlan plan_;
  std::array<int64_t, TransposePlan::kMaxAxes> distances_{};  // [axis of the output] in the output, in chunks
  size_t last_ = 0;
  size_t inner_ = last_;  // the innermost axis of the input other than last_
  int64_t inner_tiles_ = 1;
  int64_t rows_ = 1;  // of all other axes
};

class CpuTranspose final : public UnaryOp {
 public:
  CpuTranspose(onednn::Context& context, const TransposePlans& plans)
      : context_(context),
        output_({.shape = plans.output}),
        forward_(plans.forward),
        backward_(plans.backward) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override {
    forward_.Run(context_, x, y);
    return absl::OkStatus();
  }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    backward_.Run(context_, dy, dx);
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const ChunkCopy forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(onednn::Context& context,
                                                       const TransposeParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const TransposePlans plans, PlanTranspose(params));
  return std::make_unique<CpuTranspose>(context, plans);
}

}  // namespace cairn::kernels::cpu

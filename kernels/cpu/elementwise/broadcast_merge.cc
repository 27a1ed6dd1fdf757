// Merges of inputs that are broadcast to one shape.
#include <algorithm>
#include <utility>

#include "common/core/status.h"
#include "kernels/broadcast.h"
#include "kernels/cpu/elementwise/broadcast_product.h"
#include "kernels/cpu/elementwise/broadcast_runs.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

template <MergeKind kKind>
class CpuBroadcastMerge final : public NaryOp {
 public:
  CpuBroadcastMerge(onednn::Context& context, const Broadcast& broadcast, TensorDesc output)
      : context_(context), b_(broadcast), output_(std::move(output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ParallelFor(context_, b_.elements, kElementGrain, [&](int64_t begin, int64_t end) {
      ForEachRun(b_, begin, end, [&](const Run& run) { Merge(run, xs, y + run.output); });
    });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    for (size_t k = 0; k < dxs.size(); ++k) {
      if (dxs[k] != nullptr) BackwardOf(static_cast<int>(k), xs, dy, dxs[k]);
    }
    return absl::OkStatus();
  }

 private:
  int64_t StrideOf(int input) const { return b_.strides[input][b_.axes - 1]; }

  void Merge(const Run& run, absl::Span<const float* const> xs, float* y) const {
    const float* first = xs[0] + run.offsets[0];
    const int64_t stride = StrideOf(0);
    if constexpr (kKind == MergeKind::kSelect) {
      const float* const x = xs[1] + run.offsets[1];
      const float* const otherwise = xs[2] + run.offsets[2];
      const int64_t step = StrideOf(1), other_step = StrideOf(2);
      for (int64_t i = 0; i < run.count; ++i)
        y[i] = Select(first[i * stride], x[i * step], otherwise[i * other_step]);
      return;
    }
    for (int64_t i = 0; i < run.count; ++i) y[i] = first[i * stride];
    for (int k = 1; k < b_.inputs; ++k) {
      const float* x = xs[static_cast<size_t>(k)] + run.offsets[static_cast<size_t>(k)];
      const int64_t step = StrideOf(k);
      for (int64_t i = 0; i < run.count; ++i) y[i] = MergeNext(kKind, y[i], x[i * step]);
    }
    if (kKind != MergeKind::kAverage) return;
    const auto inputs = static_cast<float>(b_.inputs);
    for (int64_t i = 0; i < run.count; ++i) y[i] /= inputs;
  }

  // The contribution of the run's element `i` to the gradient of input `k`.
  float Term(int k, const Run& run, absl::Span<const float* const> xs, const float* dy, int64_t i) const {
    const auto value = [&](int input) {
      const auto index = static_cast<size_t>(input);
      return xs[index][run.offsets[index] + i * StrideOf(input)];
    };
    return MergeGradient(kKind, b_.inputs, k, value, dy[run.output + i]);
  }

  // The gradient of a broadcast input is a sum over the axes along which it is repeated. Threads divide the
  // first axis, unless the input is repeated along it.
  void BackwardOf(int k, absl::Span<const float* const> xs, const float* dy, float* dx) const {
    const bool repeats = b_.repeats(k);
    if (repeats) std::fill_n(dx, b_.elements_of(k), 0.0f);
    const int64_t slice = b_.elements / b_.extents[0];  // output elements per index of the first axis
    const bool shared = !repeats || b_.strides[k][0] != 0;
    const int64_t pieces = !repeats ? b_.elements : shared ? b_.extents[0] : 1;
    const int64_t piece = b_.elements / pieces;
    const int64_t grain = std::max<int64_t>(1, kElementGrain / (repeats ? slice : 1));
    ParallelFor(context_, pieces, grain, [&](int64_t begin, int64_t end) {
      ForEachRun(b_, begin * piece, end * piece,
                 [&](const Run& run) { AddRun(k, run, xs, dy, repeats, dx); });
    });
  }

  void AddRun(int k, const Run& run, absl::Span<const float* const> xs, const float* dy, bool add,
              float* dx) const {
    float* to = dx + run.offsets[static_cast<size_t>(k)];
    if (StrideOf(k) == 0) {
      double sum = 0;
      for (int64_t i = 0; i < run.count; ++i) sum += double{Term(k, run, xs, dy, i)};
      *to += static_cast<float>(sum);
    } else {
      for (int64_t i = 0; i < run.count; ++i) to[i] = (add ? to[i] : 0.0f) + Term(k, run, xs, dy, i);
    }
  }

  onednn::Context& context_;
  const Broadcast b_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(onednn::Context& context,
                                                           const MergeParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Broadcast broadcast, MakeBroadcast(params.inputs));
  CAIRN_ASSIGN_OR_RETURN(TensorDesc output, OutputDesc(params));
  if (params.kind == MergeKind::kMultiply) {
    if (auto product = MakeBroadcastProduct(context, broadcast, output); product != nullptr) return product;
  }
  const auto make = [&]<MergeKind kKind>() -> std::unique_ptr<NaryOp> {
    return std::make_unique<CpuBroadcastMerge<kKind>>(context, broadcast, std::move(output));
  };
  switch (params.kind) {
    case MergeKind::kAdd:
      return make.template operator()<MergeKind::kAdd>();
    case MergeKind::kSubtract:
      return make.template operator()<MergeKind::kSubtract>();
    case MergeKind::kMultiply:
      return make.template operator()<MergeKind::kMultiply>();
    case MergeKind::kAverage:
      return make.template operator()<MergeKind::kAverage>();
    case MergeKind::kMaximum:
      return make.template operator()<MergeKind::kMaximum>();
    case MergeKind::kMinimum:
      return make.template operator()<MergeKind::kMinimum>();
    case MergeKind::kSelect:
      return make.template operator()<MergeKind::kSelect>();
  }
  return absl::InternalError("unknown kind of merge");
}

}  // namespace cairn::kernels::cpu

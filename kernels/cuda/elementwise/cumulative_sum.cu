// Cumulative sums along the middle axis of [n, steps, c].
#include <cstdint>
#include <memory>
#include <type_traits>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cumulative_sum.h"

namespace cairn::kernels::cuda {
namespace {

struct Sequences {
  int64_t count = 0, steps = 0, columns = 0;
  int width = 1;  // columns of a tile, a power of 2

  __host__ __device__ int64_t tiles() const { return count * ((columns + width - 1) / width); }
};

// One block for each tile of adjacent columns of one sequence, grid-strided. Of its threads, `width` are side by side;
// the others divide the steps into segments. Reads x twice: for the sums of the segments, then for y. Deterministic.
template <typename T>
__global__ void SumUp(Sequences s, bool from_last, const T* x, T* y) {
  __shared__ float sums[kBlock];
  const int column = static_cast<int>(threadIdx.x) % s.width,
            segment = static_cast<int>(threadIdx.x) / s.width;
  const int64_t segments = kBlock / s.width, length = (s.steps + segments - 1) / segments;
  const int64_t begin = segment * length < s.steps ? segment * length : s.steps;
  const int64_t end = begin + length < s.steps ? begin + length : s.steps;
  const int64_t across = (s.columns + s.width - 1) / s.width;
  for (int64_t tile = blockIdx.x; tile < s.tiles(); tile += gridDim.x) {
    const int64_t n = tile / across, c = tile % across * s.width + column;
    const auto at = [&](int64_t i) {
      return (n * s.steps + (from_last ? s.steps - 1 - i : i)) * s.columns + c;
    };
    float sum = 0;
    for (int64_t i = begin; i < end && c < s.columns; ++i) sum += ToFloat(x[at(i)]);
    sums[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int before = 0; before < segment; ++before) sum += sums[before * s.width + column];
    for (int64_t i = begin; i < end && c < s.columns; ++i) {
      sum += ToFloat(x[at(i)]);
      y[at(i)] = FromFloat<T>(sum);
    }
    __syncthreads();  // `sums` is about to be overwritten
  }
}

template <typename T>
class CudaCumulativeSum final : public UnaryOp {
 public:
  CudaCumulativeSum(Context& context, const TensorDesc& input) : context_(context), output_(input) {
    sequences_ = {.count = input.shape[0], .steps = input.shape[1], .columns = input.shape[2]};
    while (sequences_.width < kWarp && sequences_.width < sequences_.columns) sequences_.width *= 2;
  }

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const float* x, float* y) override { return Run(x, /*from_last=*/false, y); }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    return Run(dy, /*from_last=*/true, dx);
  }

 private:
  absl::Status Run(const float* x, bool from_last, float* y) {
    return CAIRN_LAUNCH(SumUp<T>, GridFor(sequences_.tiles(), 1), kBlock, 0, context_.stream(), sequences_,
                        from_last, As<T>(x), As<T>(y));
  }

  Context& context_;
  const TensorDesc output_;
  Sequences sequences_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(Context& context,
                                                           const CumulativeSumParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return VisitType(params.input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaCumulativeSum<T>>(context, params.input);
  });
}

}  // namespace cairn::kernels::cuda

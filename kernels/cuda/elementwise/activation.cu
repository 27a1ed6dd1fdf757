// Element-wise functions with the shared formulas.
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each vector of elements, grid-strided; memory is padded to whole vectors. Deterministic.
template <typename T>
__global__ void ActivationForward(ActivationParams f, int64_t vectors, const Vector<T>* x, Vector<T>* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    Vector<T> v = x[i];
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) v.at[k] = FromFloat<T>(Activate(f, ToFloat(v.at[k])));
    y[i] = v;
  }
}

template <typename T>
__global__ void ActivationBackward(ActivationParams f, int64_t vectors, const Vector<T>* x,
                                   const Vector<T>* dy, Vector<T>* dx) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    const Vector<T> v = x[i];
    Vector<T> d = dy[i];
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) {
      d.at[k] = FromFloat<T>(ActivationGradient(f, ToFloat(v.at[k]), ToFloat(d.at[k])));
    }
    dx[i] = d;
  }
}

template <typename T>
class CudaActivation final : public UnaryOp {
 public:
  CudaActivation(Context& context, TensorDesc desc, const ActivationParams& params)
      : context_(context),
        desc_(std::move(desc)),
        params_(params),
        vectors_(CeilDiv(desc_.shape.num_elements(), kVector<T>)) {}

  const TensorDesc& output() const override { return desc_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH(ActivationForward<T>, GridFor(vectors_), kBlock, 0, context_.stream(), params_,
                        vectors_, As<Vector<T>>(x), As<Vector<T>>(y));
  }
  absl::Status Backward(const float* x, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH(ActivationBackward<T>, GridFor(vectors_), kBlock, 0, context_.stream(), params_,
                        vectors_, As<Vector<T>>(x), As<Vector<T>>(dy), As<Vector<T>>(dx));
  }

 private:
  Context& context_;
  const TensorDesc desc_;
  const ActivationParams params_;
  const int64_t vectors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(Context& context, const TensorDesc& input,
                                                        const ActivationParams& params) {
  return VisitType(input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaActivation<T>>(context, input, params);
  });
}

}  // namespace cairn::kernels::cuda

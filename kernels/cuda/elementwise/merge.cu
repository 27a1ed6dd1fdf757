// Sums and products of tensors of one shape. Unlike the tensors of most ops, these tensors may be parts of
// larger memory: they may begin at any address, and nothing after their last element is written.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

struct Plus {
  __host__ __device__ float operator()(float a, float b) const { return a + b; }
};
struct Times {
  __host__ __device__ float operator()(float a, float b) const { return a * b; }
};

// The number of inputs of one launch; more inputs need several launches.
constexpr int kMaxInputs = 8;
template <typename Pointer>
struct Pointers {
  Pointer at[kMaxInputs] = {};
  int count = 0;
};

// The number of vectors of T at the beginning of `count` elements; the remaining elements are processed one
// by one. 0 if a pointer is not aligned to vectors.
template <typename T>
int64_t VectorsOf(int64_t count, bool aligned) {
  return aligned ? count / kVector<T> : 0;
}
inline bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// y = x0 op x1 op ..., where y may be x0. kCount inputs; a kCount of 0 means any number. One thread for each
// vector of elements, then one for each remaining element, grid-strided. Deterministic.
template <typename T, typename Op, int kCount>
__global__ void Combine(int64_t vectors, int64_t count, Pointers<const T*> xs, T* y) {
  const int inputs = kCount == 0 ? xs.count : kCount;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    float sum[kVector<T>];
    Vector<T> v = reinterpret_cast<const Vector<T>*>(xs.at[0])[i];
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) sum[k] = ToFloat(v.at[k]);
    for (int input = 1; input < inputs; ++input) {
      v = reinterpret_cast<const Vector<T>*>(xs.at[input])[i];
#pragma unroll
      for (int k = 0; k < kVector<T>; ++k) sum[k] = Op()(sum[k], ToFloat(v.at[k]));
    }
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) v.at[k] = FromFloat<T>(sum[k]);
    reinterpret_cast<Vector<T>*>(y)[i] = v;
  }
  const int64_t rest = vectors * kVector<T>;
  for (int64_t i = rest + CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    float sum = ToFloat(xs.at[0][i]);
    for (int input = 1; input < inputs; ++input) sum = Op()(sum, ToFloat(xs.at[input][i]));
    y[i] = FromFloat<T>(sum);
  }
}

// Copies x to each of `ys`. One thread for each vector of elements, then one for each remaining element,
// grid-strided. Deterministic.
template <typename T>
__global__ void CopyToAll(int64_t vectors, int64_t count, const T* x, Pointers<T*> ys) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    const Vector<T> v = reinterpret_cast<const Vector<T>*>(x)[i];
    for (int k = 0; k < ys.count; ++k) reinterpret_cast<Vector<T>*>(ys.at[k])[i] = v;
  }
  const int64_t rest = vectors * kVector<T>;
  for (int64_t i = rest + CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    const T v = x[i];
    for (int k = 0; k < ys.count; ++k) ys.at[k][i] = v;
  }
}

template <typename T>
class CudaMerge : public NaryOp {
 public:
  CudaMerge(Context& context, const TensorDesc& desc)
      : context_(context), desc_(desc), count_(desc.shape.num_elements()) {}
  const TensorDesc& output() const override { return desc_; }

 protected:
  template <typename Op>
  absl::Status CombineAll(absl::Span<const float* const> xs, float* y) {
    Pointers<const T*> some;
    bool aligned = IsAligned(y);
    for (size_t k = 0; k < xs.size(); ++k) {
      some.at[some.count++] = As<T>(xs[k]);
      aligned = aligned && IsAligned(xs[k]);
      if (some.count < kMaxInputs && k + 1 < xs.size()) continue;
      CAIRN_RETURN_IF_ERROR(CombineSome<Op>(some, aligned, y));
      some.count = 1;
      some.at[0] = As<T>(y);
      aligned = IsAligned(y);
    }
    return absl::OkStatus();
  }

  absl::Status Copy(const float* x, absl::Span<float* const> ys) {
    Pointers<T*> some;
    bool aligned = IsAligned(x);
    for (size_t k = 0; k < ys.size(); ++k) {
      if (ys[k] != nullptr) {
        some.at[some.count++] = As<T>(ys[k]);
        aligned = aligned && IsAligned(ys[k]);
      }
      if (some.count == 0 || (some.count < kMaxInputs && k + 1 < ys.size())) continue;
      const int64_t vectors = VectorsOf<T>(count_, aligned);
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(CopyToAll<T>, GridFor(aligned ? vectors : count_), kBlock, 0,
                                         context_.stream(), vectors, count_, As<T>(x), some));
      some.count = 0;
      aligned = IsAligned(x);
    }
    return absl::OkStatus();
  }

 private:
  template <typename Op>
  absl::Status CombineSome(const Pointers<const T*>& xs, bool aligned, float* y) {
    const int64_t vectors = VectorsOf<T>(count_, aligned);
    const unsigned grid = GridFor(aligned ? vectors : count_);
    if (xs.count == 2) {
      return CAIRN_LAUNCH((Combine<T, Op, 2>), grid, kBlock, 0, context_.stream(), vectors, count_, xs,
                          As<T>(y));
    }
    return CAIRN_LAUNCH((Combine<T, Op, 0>), grid, kBlock, 0, context_.stream(), vectors, count_, xs,
                        As<T>(y));
  }

  Context& context_;
  const TensorDesc desc_;
  const int64_t count_;
};

template <typename T>
class CudaAdd final : public CudaMerge<T> {
 public:
  using CudaMerge<T>::CudaMerge;
  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return this->template CombineAll<Plus>(xs, y);
  }
  absl::Status Backward(absl::Span<const float* const> /*xs*/, const float* dy,
                        absl::Span<float* const> dxs) override {
    return this->Copy(dy, dxs);
  }
};

template <typename T>
class CudaMultiply final : public CudaMerge<T> {
 public:
  using CudaMerge<T>::CudaMerge;
  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return this->template CombineAll<Times>(xs, y);
  }
  // dx_k = dy times the other inputs.
  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    for (size_t k = 0; k < dxs.size(); ++k) {
      if (dxs[k] == nullptr) continue;
      absl::InlinedVector<const float*, kMaxInputs> factors = {dy};
      for (size_t other = 0; other < xs.size(); ++other) {
        if (other != k) factors.push_back(xs[other]);
      }
      CAIRN_RETURN_IF_ERROR(this->template CombineAll<Times>(factors, dxs[k]));
    }
    return absl::OkStatus();
  }
};

template <template <typename> class Merge>
absl::StatusOr<std::unique_ptr<NaryOp>> Make(Context& context, const TensorDesc& input, int inputs) {
  if (inputs < 2 || input.shape.num_elements() < 1 || input.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs, " inputs of ", input.ToString(), ": expected two or more, row-major"));
  }
  return VisitType(input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<NaryOp>> {
    return std::make_unique<Merge<std::remove_pointer_t<decltype(p)>>>(context, input);
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(Context& context, const TensorDesc& input, int inputs) {
  return Make<CudaAdd>(context, input, inputs);
}

absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(Context& context, const TensorDesc& input, int inputs) {
  return Make<CudaMultiply>(context, input, inputs);
}

}  // namespace cairn::kernels::cuda

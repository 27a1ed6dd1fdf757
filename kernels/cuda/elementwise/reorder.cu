// Converts between element types.
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// The number of floats in 16 bytes: memory is padded to multiples of 16 bytes.
constexpr int kTogether = 4;

// One thread for each pack of elements, grid-strided. Deterministic.
template <typename From, typename To>
__global__ void Cast(int64_t packs, const Pack<From, kTogether>* from, Pack<To, kTogether>* to) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < packs; i += CAIRN_GLOBAL_THREADS) {
    const Pack<From, kTogether> v = from[i];
    Pack<To, kTogether> w;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) w.at[k] = FromFloat<To>(ToFloat(v.at[k]));
    to[i] = w;
  }
}

// One thread for each element, grid-strided. Deterministic.
template <typename Integer>
__global__ void CastIntegers(int64_t elements, const Integer* from, float* to) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < elements; i += CAIRN_GLOBAL_THREADS) {
    to[i] = static_cast<float>(from[i]);
  }
}

template <typename Integer>
class FromIntegers final : public Reorder {
 public:
  FromIntegers(Context& context, int64_t elements) : context_(context), elements_(elements) {}

  absl::Status Run(const float* from, float* to) override {
    return CAIRN_LAUNCH(CastIntegers<Integer>, GridFor(elements_), kBlock, 0, context_.stream(), elements_,
                        As<Integer>(from), to);
  }

 private:
  Context& context_;
  const int64_t elements_;
};

template <typename From, typename To>
class CudaReorder final : public Reorder {
 public:
  CudaReorder(Context& context, int64_t elements) : context_(context), elements_(elements) {}

  absl::Status Run(const float* from, float* to) override {
    if constexpr (std::is_same_v<From, To>) {
      return context_.CopyOnDevice(from, to, elements_ * int64_t{sizeof(From)});
    } else {
      const int64_t packs = CeilDiv(elements_, kTogether);
      return CAIRN_LAUNCH((Cast<From, To>), GridFor(packs), kBlock, 0, context_.stream(), packs,
                          (As<Pack<From, kTogether>>(from)), (As<Pack<To, kTogether>>(to)));
    }
  }

 private:
  Context& context_;
  const int64_t elements_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(Context& context, const TensorDesc& from,
                                                     const TensorDesc& to) {
  if (from.shape != to.shape || from.layout != Layout::kRowMajor || to.layout != Layout::kRowMajor) {
    return absl::InvalidArgumentError(absl::StrCat("reorder from ", from.ToString(), " to ", to.ToString(),
                                                   ": expected one shape, row-major"));
  }
  if (IsInteger(to.type) || (IsInteger(from.type) && to.type != ElementType::kFloat32)) {
    return absl::InvalidArgumentError(absl::StrCat("reorder from ", from.ToString(), " to ", to.ToString(),
                                                   ": integers are only converted to float32"));
  }
  if (IsInteger(from.type)) {
    return WithIntegerType(from.type, [&](auto zero) -> std::unique_ptr<Reorder> {
      return std::make_unique<FromIntegers<decltype(zero)>>(context, from.shape.num_elements());
    });
  }
  return VisitType(from.type, [&](auto* source) {
    return VisitType(to.type, [&](auto* destination) -> absl::StatusOr<std::unique_ptr<Reorder>> {
      using From = std::remove_pointer_t<decltype(source)>;
      using To = std::remove_pointer_t<decltype(destination)>;
      return std::make_unique<CudaReorder<From, To>>(context, from.shape.num_elements());
    });
  });
}

}  // namespace cairn::kernels::cuda

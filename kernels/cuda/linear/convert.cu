#include <type_traits>

#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/ops.h"

namespace cairn::kernels::cuda {
namespace {

// All kernels in this file use one thread for each element written, grid-strided. Deterministic.

template <typename T>
__global__ void Convert(int64_t count, const float* from, T* to) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) to[i] = FromFloat<T>(from[i]);
}

// Converts `from` [places, c, f] to `to` [f, places, c].
template <typename T>
__global__ void ToFilterFirst(int64_t places, int64_t c, int64_t f, const float* from, T* to) {
  const int64_t inner = places * c;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inner * f; i += CAIRN_GLOBAL_THREADS) {
    to[i] = FromFloat<T>(from[i % inner * f + i / inner]);
  }
}

// Converts `from` [f, places, c] to `to` [places, c, f].
template <typename T>
__global__ void FromFilterFirst(int64_t places, int64_t c, int64_t f, const T* from, float* to) {
  const int64_t inner = places * c;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < inner * f; i += CAIRN_GLOBAL_THREADS) {
    to[i] = ToFloat(from[i % f * inner + i / f]);
  }
}

}  // namespace

absl::Status FromFloats(Context& context, const float* from, ElementType type, void* to, int64_t count) {
  return VisitType(type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return CAIRN_LAUNCH(Convert<T>, GridFor(count), kBlock, 0, context.stream(), count, from,
                        static_cast<T*>(to));
  });
}

absl::StatusOr<ConvertedInput> ConvertedInput::Create(Context& context, const TensorDesc& input,
                                                      bool needs_input_gradient) {
  ConvertedInput converted;
  if (input.type == context.compute_type()) return converted;
  TensorDesc desc = input;
  desc.type = context.compute_type();
  CAIRN_ASSIGN_OR_RETURN(converted.there_, MakeReorder(context, input, desc));
  CAIRN_ASSIGN_OR_RETURN(converted.value_, context.Allocate(desc.num_floats(), "converted input"));
  if (needs_input_gradient) {
    CAIRN_ASSIGN_OR_RETURN(converted.back_, MakeReorder(context, desc, input));
    CAIRN_ASSIGN_OR_RETURN(converted.gradient_,
                           context.Allocate(desc.num_floats(), "gradient of converted input"));
  }
  return converted;
}

absl::Status ConvertedInput::Convert(const float* x) {
  return there_ == nullptr ? absl::OkStatus() : there_->Run(x, value_->data());
}

absl::Status ConvertedInput::ConvertGradient(float* dx) {
  return back_ == nullptr || dx == nullptr ? absl::OkStatus() : back_->Run(gradient_->data(), dx);
}

absl::Status KernelToCudnn(Context& context, const float* from, ElementType type, void* to, int64_t places,
                           int64_t c, int64_t f) {
  return VisitType(type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return CAIRN_LAUNCH(ToFilterFirst<T>, GridFor(places * c * f), kBlock, 0, context.stream(), places, c, f,
                        from, static_cast<T*>(to));
  });
}

absl::Status KernelFromCudnn(Context& context, ElementType type, const void* from, float* to, int64_t places,
                             int64_t c, int64_t f) {
  return VisitType(type, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    return CAIRN_LAUNCH(FromFilterFirst<T>, GridFor(places * c * f), kBlock, 0, context.stream(), places, c,
                        f, static_cast<const T*>(from), to);
  });
}

}  // namespace cairn::kernels::cuda

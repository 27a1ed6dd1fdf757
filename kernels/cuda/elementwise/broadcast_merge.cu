// Merges of inputs that are broadcast to one shape.
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/broadcast.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

template <typename T>
struct Inputs {
  const T* at[Broadcast::kMaxInputs] = {};
};

// The values of the inputs at one element of the output.
template <typename T>
struct ValuesAt {
  const Broadcast& b;
  const Inputs<T>& xs;
  const int64_t* index;
  CAIRN_HOST_DEVICE float operator()(int input) const {
    return ToFloat(xs.at[input][b.OffsetOf(input, index)]);
  }
};

// y = merge of the inputs. One thread for each element of the output, grid-strided. Deterministic.
template <typename T>
__global__ void MergeForward(Broadcast b, MergeKind kind, Inputs<T> xs, T* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < b.elements; i += CAIRN_GLOBAL_THREADS) {
    int64_t index[Broadcast::kMaxAxes];
    b.Locate(i, index);
    const ValuesAt<T> values = {b, xs, index};
    if (kind == MergeKind::kSelect) {
      y[i] = FromFloat<T>(Select(values(0), values(1), values(2)));
      continue;
    }
    float merged = values(0);
    for (int k = 1; k < b.inputs; ++k) merged = MergeNext(kind, merged, values(k));
    if (kind == MergeKind::kAverage) merged /= static_cast<float>(b.inputs);
    y[i] = FromFloat<T>(merged);
  }
}

// dx of input `k`: for each of its elements, the sum of dy times the derivative over all elements of the
// output to which the element is broadcast. One thread for each of `count` elements of dx, grid-strided;
// adjacent threads read adjacent elements. Deterministic.
template <typename T>
__global__ void MergeBackward(Broadcast b, MergeKind kind, int k, int64_t count, int64_t repeats,
                              Inputs<T> xs, const T* dy, T* dx) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS) {
    int64_t index[Broadcast::kMaxAxes] = {}, rest = i;
    for (int axis = b.axes - 1; axis >= 0; --axis) {
      if (b.strides[k][axis] == 0) continue;
      index[axis] = rest % b.extents[axis];
      rest /= b.extents[axis];
    }
    float sum = 0;
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      rest = repeat;
      int64_t output = 0, stride = 1;
      for (int axis = b.axes - 1; axis >= 0; --axis) {
        if (b.strides[k][axis] == 0) {
          index[axis] = rest % b.extents[axis];
          rest /= b.extents[axis];
        }
        output += index[axis] * stride;
        stride *= b.extents[axis];
      }
      const ValuesAt<T> values = {b, xs, index};
      sum += MergeGradient(kind, b.inputs, k, values, ToFloat(dy[output]));
    }
    dx[i] = FromFloat<T>(sum);
  }
}

template <typename T>
class CudaBroadcastMerge final : public NaryOp {
 public:
  CudaBroadcastMerge(Context& context, MergeKind kind, const Broadcast& broadcast, TensorDesc output)
      : context_(context), kind_(kind), b_(broadcast), output_(std::move(output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return CAIRN_LAUNCH(MergeForward<T>, GridFor(b_.elements), kBlock, 0, context_.stream(), b_, kind_,
                        InputsOf(xs), As<T>(y));
  }

  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    for (size_t k = 0; k < dxs.size(); ++k) {
      if (dxs[k] == nullptr) continue;
      const auto input = static_cast<int>(k);
      const int64_t count = b_.elements_of(input);
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(MergeBackward<T>, GridFor(count), kBlock, 0, context_.stream(), b_,
                                         kind_, input, count, b_.elements / count, InputsOf(xs), As<T>(dy),
                                         As<T>(dxs[k])));
    }
    return absl::OkStatus();
  }

 private:
  static Inputs<T> InputsOf(absl::Span<const float* const> xs) {
    Inputs<T> inputs;
    for (size_t k = 0; k < xs.size(); ++k) inputs.at[k] = As<T>(xs[k]);
    return inputs;
  }

  Context& context_;
  const MergeKind kind_;
  const Broadcast b_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(Context& context, const MergeParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Broadcast broadcast, MakeBroadcast(params.inputs));
  CAIRN_ASSIGN_OR_RETURN(TensorDesc output, OutputDesc(params));
  return VisitType(output.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<NaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return std::make_unique<CudaBroadcastMerge<T>>(context, params.kind, broadcast, std::move(output));
  });
}

}  // namespace cairn::kernels::cuda

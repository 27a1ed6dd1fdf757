// y = x * scale + offset by constants: rescaling and normalization of inputs.
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// One thread for each vector of elements, grid-strided; memory is padded to whole vectors. `scale` and
// `offset` are [width]; `offset` is null if nothing is added. Deterministic.
template <typename T>
__global__ void AffineKernel(int64_t vectors, int64_t width, const float* scale, const float* offset,
                             const Vector<T>* x, Vector<T>* y) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < vectors; i += CAIRN_GLOBAL_THREADS) {
    Vector<T> v = x[i];
    int64_t column = i * kVector<T> % width;
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) {
      v.at[k] = FromFloat<T>(ToFloat(v.at[k]) * scale[column] + (offset != nullptr ? offset[column] : 0.0f));
      if (++column == width) column = 0;
    }
    y[i] = v;
  }
}

template <typename T>
class CudaAffine final : public UnaryOp {
 public:
  static absl::StatusOr<std::unique_ptr<UnaryOp>> Create(Context& context, const AffineParams& params) {
    std::unique_ptr<CudaAffine> op(new CudaAffine(context, params));
    const auto width = static_cast<int64_t>(op->scale_.size()), bytes = width * int64_t{sizeof(float)};
    CAIRN_ASSIGN_OR_RETURN(op->constants_, context.Allocate(2 * width, "scale and offset"));
    CAIRN_RETURN_IF_ERROR(context.CopyToDevice(op->scale_.data(), op->constants_->data(), bytes));
    CAIRN_RETURN_IF_ERROR(context.CopyToDevice(op->offset_.data(), op->constants_->data() + width, bytes));
    return op;
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    return Run(constants_->data() + scale_.size(), x, y);
  }
  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    return Run(nullptr, dy, dx);
  }

 private:
  CudaAffine(Context& context, const AffineParams& params)
      : context_(context), output_(params.input), scale_(params.scale), offset_(params.offset) {}

  absl::Status Run(const float* offset, const float* x, float* y) {
    const int64_t vectors = CeilDiv(output_.shape.num_elements(), kVector<T>);
    return CAIRN_LAUNCH(AffineKernel<T>, GridFor(vectors), kBlock, 0, context_.stream(), vectors,
                        static_cast<int64_t>(scale_.size()), constants_->data(), offset, As<Vector<T>>(x),
                        As<Vector<T>>(y));
  }

  Context& context_;
  const TensorDesc output_;
  // One value, or [width]. The copies on the host must stay because the device may read them after
  // CopyToDevice() has returned.
  const std::vector<float> scale_, offset_;
  std::unique_ptr<DeviceMemory> constants_;  // scale, then offset
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(Context& context, const AffineParams& params) {
  const Shape& shape = params.input.shape;
  const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  AffineParams widened = params;
  const size_t columns = std::max(params.scale.size(), params.offset.size());
  for (std::vector<float>* values : {&widened.scale, &widened.offset}) {
    if (values->size() == 1) values->resize(columns, values->front());
  }
  const bool fits = columns == 1 || static_cast<int64_t>(columns) == width;
  if (params.input.layout != Layout::kRowMajor || width < 1 || !fits || widened.scale.size() != columns ||
      widened.offset.size() != columns) {
    return absl::InvalidArgumentError(absl::StrCat(params.scale.size(), " scales and ", params.offset.size(),
                                                   " offsets do not fit input ", params.input.ToString()));
  }
  return VisitType(params.input.type, [&](auto* p) {
    return CudaAffine<std::remove_pointer_t<decltype(p)>>::Create(context, widened);
  });
}

}  // namespace cairn::kernels::cuda

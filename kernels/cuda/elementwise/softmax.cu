// Softmax over the last axis.
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// Softmax of each row; x and y are [rows, width]. Reads x three times, the second and third time from the
// cache. Deterministic.
template <typename T, int kUnit>
__global__ void SoftmaxForward(RowPlan plan, int64_t width, const T* x, T* y) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round);
    const int64_t own = row < plan.rows ? width : 0;
    const T* const from = x + row * width;
    float largest = -std::numeric_limits<float>::infinity();
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) largest = Largest()(largest, ToFloat(v.at[k]));
    });
    largest = plan.Reduce(largest, Largest());
    float sum = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) sum += std::exp(ToFloat(v.at[k]) - largest);
    });
    const float scale = 1.0f / plan.Reduce(sum, Sum());
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      auto v = Load<kUnit>(from + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        v.at[k] = FromFloat<T>(std::exp(ToFloat(v.at[k]) - largest) * scale);
      }
      Store(y + row * width + j, v);
    });
  }
}

// The gradient of softmax for each row; y, dy and dx are [rows, width]. Deterministic.
template <typename T, int kUnit>
__global__ void SoftmaxBackward(RowPlan plan, int64_t width, const T* y, const T* dy, T* dx) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round), begin = row * width;
    const int64_t own = row < plan.rows ? width : 0;
    float dot = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(y + begin + j), d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) dot += ToFloat(v.at[k]) * ToFloat(d.at[k]);
    });
    dot = plan.Reduce(dot, Sum());
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(y + begin + j);
      auto d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        d.at[k] = FromFloat<T>(SoftmaxGradient(ToFloat(v.at[k]), ToFloat(d.at[k]), dot));
      }
      Store(dx + begin + j, d);
    });
  }
}

template <typename T, int kUnit>
class CudaSoftmax final : public UnaryOp {
 public:
  CudaSoftmax(Context& context, TensorDesc desc, int64_t width)
      : context_(context),
        desc_(std::move(desc)),
        width_(width),
        plan_(RowPlan::Make(desc_.shape.num_elements() / width, width / kUnit, kMaxBlocks)) {}

  const TensorDesc& output() const override { return desc_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((SoftmaxForward<T, kUnit>), plan_.grid, plan_.block, 0, context_.stream(), plan_,
                        width_, As<T>(x), As<T>(y));
  }
  absl::Status Backward(const float* /*x*/, const float* y, const float* dy, float* dx) override {
    return CAIRN_LAUNCH((SoftmaxBackward<T, kUnit>), plan_.grid, plan_.block, 0, context_.stream(), plan_,
                        width_, As<T>(y), As<T>(dy), As<T>(dx));
  }

 private:
  static constexpr int64_t kMaxBlocks = 1 << 20;

  Context& context_;
  const TensorDesc desc_;
  const int64_t width_;
  const RowPlan plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(Context& context, const TensorDesc& input) {
  if (input.shape.rank() < 1 || input.layout != Layout::kRowMajor || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot compute softmax over ", input.ToString()));
  }
  const int64_t width = input.shape[input.shape.rank() - 1];
  return VisitType(input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(width, [&](auto unit) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
      return std::make_unique<CudaSoftmax<T, decltype(unit)::value>>(context, input, width);
    });
  });
}

}  // namespace cairn::kernels::cuda

// Divides each row by its L2 norm.
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

// Each row of x [rows, width] times the inverse of its norm. Reads x twice, the second time from the cache.
// Deterministic.
template <typename T, int kUnit>
__global__ void UnitNormForward(RowPlan plan, int64_t width, float epsilon, const T* x, T* y) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round), begin = row * width;
    const int64_t own = row < plan.rows ? width : 0;
    float squares = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(x + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) squares += ToFloat(v.at[k]) * ToFloat(v.at[k]);
    });
    const float inverse = InverseNorm(plan.Reduce(squares, Sum()), epsilon);
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      auto v = Load<kUnit>(x + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) v.at[k] = FromFloat<T>(ToFloat(v.at[k]) * inverse);
      Store(y + begin + j, v);
    });
  }
}

// The gradient of x; all tensors are [rows, width]. Deterministic.
template <typename T, int kUnit>
__global__ void UnitNormBackward(RowPlan plan, int64_t width, float epsilon, const T* x, const T* dy, T* dx) {
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t row = plan.Row(round), begin = row * width;
    const int64_t own = row < plan.rows ? width : 0;
    float squares = 0, dot = 0;
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(x + begin + j), d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        squares += ToFloat(v.at[k]) * ToFloat(v.at[k]);
        dot += ToFloat(v.at[k]) * ToFloat(d.at[k]);
      }
    });
    squares = plan.Reduce(squares, Sum());
    const float inverse = InverseNorm(squares, epsilon);
    dot = UnitNormDot(squares, epsilon, plan.Reduce(dot, Sum()) * inverse);
    plan.ForEach<kUnit>(own, [&](int64_t j) {
      const auto v = Load<kUnit>(x + begin + j);
      auto d = Load<kUnit>(dy + begin + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        d.at[k] = FromFloat<T>((ToFloat(d.at[k]) - ToFloat(v.at[k]) * inverse * dot) * inverse);
      }
      Store(dx + begin + j, d);
    });
  }
}

template <typename T, int kUnit>
class CudaUnitNorm final : public UnaryOp {
 public:
  CudaUnitNorm(Context& context, const UnitNormParams& params, int64_t width)
      : context_(context),
        desc_(params.input),
        width_(width),
        epsilon_(params.epsilon),
        plan_(RowPlan::Make(desc_.shape.num_elements() / width, width / kUnit, kMaxBlocks)) {}

  const TensorDesc& output() const override { return desc_; }

  absl::Status Forward(const float* x, float* y) override {
    return CAIRN_LAUNCH((UnitNormForward<T, kUnit>), plan_.grid, plan_.block, 0, context_.stream(), plan_,
                        width_, epsilon_, As<T>(x), As<T>(y));
  }
  absl::Status Backward(const float* x, const float* /*y*/, const float* dy, float* dx) override {
    return CAIRN_LAUNCH((UnitNormBackward<T, kUnit>), plan_.grid, plan_.block, 0, context_.stream(), plan_,
                        width_, epsilon_, As<T>(x), As<T>(dy), As<T>(dx));
  }

 private:
  static constexpr int64_t kMaxBlocks = 1 << 20;

  Context& context_;
  const TensorDesc desc_;
  const int64_t width_;
  const float epsilon_;
  const RowPlan plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(Context& context, const UnitNormParams& params) {
  const TensorDesc& input = params.input;
  if (input.shape.rank() < 1 || input.layout != Layout::kRowMajor || input.shape.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot normalize the rows of ", input.ToString()));
  }
  const int64_t width = input.shape[input.shape.rank() - 1];
  return VisitType(input.type, [&](auto* p) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
    using T = std::remove_pointer_t<decltype(p)>;
    return VisitUnit<T>(width, [&](auto unit) -> absl::StatusOr<std::unique_ptr<UnaryOp>> {
      return std::make_unique<CudaUnitNorm<T, decltype(unit)::value>>(context, params, width);
    });
  });
}

}  // namespace cairn::kernels::cuda

// L1 and L2 penalties on a variable.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

struct Penalty {
  int64_t elements = 0;
  float l1 = 0, l2 = 0;
};

// Sums the penalty of w and adds its gradient to `gradient`, unless that is null. Both are [elements] at any
// address. One thread for each element, grid-strided. Blocks write their sums to `partials` [blocks], and the
// last block adds them and writes the host's `penalty`. Deterministic.
__global__ void Penalize(Penalty p, const float* w, float* gradient, double* partials, unsigned* counter,
                         double* penalty) {
  double sum = 0;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < p.elements; i += CAIRN_GLOBAL_THREADS) {
    const float v = w[i];
    sum += WeightPenalty(p.l1, p.l2, double{std::fabs(v)}, double{v} * double{v});
    if (gradient != nullptr) gradient[i] += PenaltyGradient(p.l1, p.l2, v);
  }
  if (SumOverGrid(sum, partials, counter)) *penalty = sum;
}

class CudaRegularizer final : public Regularizer, public Delivery {
 public:
  CudaRegularizer(Context& context, const Penalty& penalty, unsigned grid,
                  std::unique_ptr<DeviceMemory> counter, PinnedArray<double> result)
      : context_(context),
        penalty_(penalty),
        grid_(grid),
        counter_(std::move(counter)),
        result_(std::move(result)) {}

  absl::Status Run(const float* w, float* gradient, double* penalty) override {
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(Penalize, grid_, kBlock, 0, context_.stream(), penalty_, w, gradient,
                                       static_cast<double*>(context_.scratch()),
                                       reinterpret_cast<unsigned*>(counter_->data()), result_.data()));
    to_ = penalty;
    context_.Expect(*this);
    return absl::OkStatus();
  }
  absl::Status Deliver() override {
    *to_ = result_[0];
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const Penalty penalty_;
  const unsigned grid_;
  const std::unique_ptr<DeviceMemory> counter_;
  const PinnedArray<double> result_;
  double* to_ = nullptr;  // the destination of the last Run()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(Context& context, int64_t elements, float l1,
                                                             float l2) {
  if (elements < 1 || !(l1 >= 0) || !(l2 >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply penalties l1 ", l1, " and l2 ", l2, " to ", elements, " elements"));
  }
  constexpr int64_t kMinElementsOfThread = 4, kBlocksOfMultiprocessor = 8;
  const auto grid =
      static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(elements, kBlock * kMinElementsOfThread), 1,
                                                kBlocksOfMultiprocessor * context.multiprocessors()));
  CAIRN_RETURN_IF_ERROR(context.ReserveScratch(grid * int64_t{sizeof(double)}));
  CAIRN_ASSIGN_OR_RETURN(auto counter, context.Allocate(1, "penalty: counter"));
  CAIRN_ASSIGN_OR_RETURN(auto result, PinnedArray<double>::Create(1));
  return std::make_unique<CudaRegularizer>(context, Penalty{.elements = elements, .l1 = l1, .l2 = l2}, grid,
                                           std::move(counter), std::move(result));
}

}  // namespace cairn::kernels::cuda

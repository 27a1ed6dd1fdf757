// L1 and L2 penalties on a variable.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cuda/blocks/host_sum.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
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

class CudaRegularizer final : public Regularizer {
 public:
  CudaRegularizer(Context& context, const Penalty& penalty, std::unique_ptr<HostSum> sum)
      : context_(context), penalty_(penalty), sum_(std::move(sum)) {}

  absl::Status Run(const float* w, float* gradient, double* penalty) override {
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(Penalize, sum_->grid(), kBlock, 0, context_.stream(), penalty_, w,
                                       gradient, sum_->partials(), sum_->counter(), sum_->result()));
    sum_->ExpectAt(penalty);
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const Penalty penalty_;
  const std::unique_ptr<HostSum> sum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(Context& context, int64_t elements, float l1,
                                                             float l2) {
  if (elements < 1 || !(l1 >= 0) || !(l2 >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply penalties l1 ", l1, " and l2 ", l2, " to ", elements, " elements"));
  }
  CAIRN_ASSIGN_OR_RETURN(auto sum, HostSum::Create(context, elements));
  return std::make_unique<CudaRegularizer>(context, Penalty{.elements = elements, .l1 = l1, .l2 = l2},
                                           std::move(sum));
}

}  // namespace cairn::kernels::cuda

// L1 and L2 penalties on a variable, in the calling thread. Terms are added in double precision, in order.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuRegularizer final : public Regularizer {
 public:
  CpuRegularizer(int64_t elements, float l1, float l2) : elements_(elements), l1_(l1), l2_(l2) {}

  absl::Status Run(const float* w, float* gradient, double* penalty) override {
    double absolute = 0, squares = 0;
    for (int64_t i = 0; i < elements_; ++i) {
      absolute += std::fabs(w[i]);
      squares += static_cast<double>(w[i]) * w[i];
      if (gradient == nullptr) continue;
      gradient[i] += PenaltyGradient(l1_, l2_, w[i]);
    }
    *penalty = WeightPenalty(l1_, l2_, absolute, squares);
    return absl::OkStatus();
  }

 private:
  const int64_t elements_;
  const float l1_, l2_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(int64_t elements, float l1, float l2) {
  if (elements < 1 || !(l1 >= 0) || !(l2 >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply penalties l1 ", l1, " and l2 ", l2, " to ", elements, " elements"));
  }
  return std::make_unique<CpuRegularizer>(elements, l1, l2);
}

}  // namespace cairn::kernels::cpu

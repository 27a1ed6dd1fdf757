// L1 and L2 penalties on a variable. Terms are added in double precision, in an order that does not depend on the
// number of threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuRegularizer final : public Regularizer {
 public:
  CpuRegularizer(onednn::Context& context, int64_t elements, float l1, float l2)
      : context_(context),
        elements_(elements),
        l1_(l1),
        l2_(l2),
        sums_(static_cast<size_t>((elements + kElementGrain - 1) / kElementGrain)) {}

  absl::Status Run(const float* w, float* gradient, double* penalty) override {
    ParallelFor(context_, elements_, kElementGrain, [&](int64_t begin, int64_t end) {
      sums_[static_cast<size_t>(begin / kElementGrain)] = SumsOf(w + begin, end - begin);
      if (gradient == nullptr) return;
      for (int64_t i = begin; i < end; ++i) gradient[i] += PenaltyGradient(l1_, l2_, w[i]);
    });
    double absolute = 0, squares = 0;
    for (const Sums& sums : sums_) {
      absolute += sums.absolute;
      squares += sums.squares;
    }
    *penalty = WeightPenalty(l1_, l2_, absolute, squares);
    return absl::OkStatus();
  }

 private:
  struct Sums {
    double absolute = 0, squares = 0;
  };

  // In lanes, so that an addition need not wait for the one before.
  static Sums SumsOf(const float* w, int64_t count) {
    constexpr int64_t kLanes = 8;
    std::array<double, kLanes> absolute{}, squares{};
    const auto add = [&](int64_t i, int64_t lane) {
      const double value = w[i];
      absolute[static_cast<size_t>(lane)] += std::fabs(value);
      squares[static_cast<size_t>(lane)] += value * value;
    };
    const int64_t whole = count / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (int64_t i = whole; i < count; ++i) add(i, i - whole);
    return {.absolute = std::accumulate(absolute.begin(), absolute.end(), 0.0),
            .squares = std::accumulate(squares.begin(), squares.end(), 0.0)};
  }

  onednn::Context& context_;
  const int64_t elements_;
  const float l1_, l2_;
  std::vector<Sums> sums_;  // [piece of kElementGrain elements]
};

}  // namespace

absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(onednn::Context& context, int64_t elements,
                                                             float l1, float l2) {
  if (elements < 1 || !(l1 >= 0) || !(l2 >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot apply penalties l1 ", l1, " and l2 ", l2, " to ", elements, " elements"));
  }
  return std::make_unique<CpuRegularizer>(context, elements, l1, l2);
}

}  // namespace cairn::kernels::cpu

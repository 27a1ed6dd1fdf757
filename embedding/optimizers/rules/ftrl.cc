#include <algorithm>
#include <cmath>
#include <limits>

#include "embedding/optimizers/rules/row_rules.h"

namespace cairn::embedding {
namespace {

struct FtrlRowConstants {
  float initial_accumulator, l1, twice_l2, twice_shrinkage, beta;
};

class FtrlRows final : public RowRule {
 public:
  FtrlRows(const FtrlRowConstants& constants, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"accumulator", dim}, {"linear", dim}}), constants_(constants) {}

  void InitSlots(absl::Span<float> slots) const override {
    std::fill_n(slots.begin(), dim(), constants_.initial_accumulator);
    std::fill_n(slots.begin() + dim(), dim(), 0.0f);
  }

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    if (update.learning_rate == 0) return;  // the rule divides by it, and a schedule may end at 0
    const int64_t n = dim();
    const float lr = update.learning_rate;
    const float l1 = constants_.l1, twice_l2 = constants_.twice_l2;
    const float shrinkage = constants_.twice_shrinkage, beta = constants_.beta;
    ForEachRow(isa(), batch, n, 3 * n, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const accumulator = w + n;
      float* const linear = accumulator + n;
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA {
        const float sum = accumulator[j] + g[j] * g[j];
        const float root = std::sqrt(sum);
        const float sigma = (root - std::sqrt(accumulator[j])) / lr;
        const float z = linear[j] + (g[j] + shrinkage * w[j]) - sigma * w[j];
        accumulator[j] = sum;
        linear[j] = z;
        const float clipped = std::min(std::max(z, -l1), l1);
        // 0 only if the accumulator, beta and l2 are: then 0 / 0 must be 0, as in TensorFlow.
        w[j] = (clipped - z) / std::max((root + beta) / lr + twice_l2, std::numeric_limits<float>::min());
      });
    });
  }

 private:
  const FtrlRowConstants constants_;
};

}  // namespace

std::unique_ptr<const RowRule> MakeFtrlRows(optim::HyperparameterReader& read, int dim, optim::Isa isa) {
  const auto take = [&](absl::string_view name, double absent) {
    return static_cast<float>(read.Take(name, absent, optim::Domain::kNonNegative));
  };
  FtrlRowConstants constants;
  constants.initial_accumulator = take("initial_accumulator_value", 0.1);
  constants.l1 = take("l1_regularization_strength", 0);
  constants.twice_l2 = 2 * take("l2_regularization_strength", 0);
  constants.twice_shrinkage = 2 * take("l2_shrinkage_regularization_strength", 0);
  constants.beta = take("beta", 0);
  if (read.Take("learning_rate_power", -0.5, optim::Domain::kNonPositive) != -0.5) {
    read.Report("the learning_rate_power of a table must be -0.5");
  }
  return std::make_unique<FtrlRows>(constants, dim, isa);
}

}  // namespace cairn::embedding

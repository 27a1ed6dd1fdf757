#include <cmath>

#include "embedding/optimizers/rules/row_rules.h"

namespace cairn::embedding {
namespace {

class AdagradRows final : public RowRule {
 public:
  AdagradRows(float initial_accumulator, float epsilon, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"accumulator", dim}}),
        initial_accumulator_(initial_accumulator),
        epsilon_(epsilon) {}

  void InitSlots(absl::Span<float> slots) const override {
    std::fill(slots.begin(), slots.end(), initial_accumulator_);
  }

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const float lr = update.learning_rate, epsilon = epsilon_;
    ForEachRow(isa(), batch, n, 2 * n, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const accumulator = w + n;
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA {
        const float sum = accumulator[j] + g[j] * g[j];
        accumulator[j] = sum;
        w[j] = w[j] - (lr * g[j]) / std::sqrt(sum + epsilon);
      });
    });
  }

 private:
  const float initial_accumulator_;
  const float epsilon_;
};

class RowWiseAdagrad final : public RowRule {
 public:
  RowWiseAdagrad(float initial_accumulator, float epsilon, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"accumulator", 1}}),
        initial_accumulator_(initial_accumulator),
        epsilon_(epsilon) {}

  void InitSlots(absl::Span<float> slots) const override { slots[0] = initial_accumulator_; }

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const float lr = update.learning_rate, epsilon = epsilon_;
    const auto columns = static_cast<float>(n);
    ForEachRow(isa(), batch, n, n + 1, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      const float sum = w[n] + SumOfSquares(g, n) / columns;
      w[n] = sum;
      const float rate = lr / (std::sqrt(sum) + epsilon);
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { w[j] = w[j] - rate * g[j]; });
    });
  }

 private:
  const float initial_accumulator_;
  const float epsilon_;
};

}  // namespace

std::unique_ptr<const RowRule> MakeAdagradRows(optim::HyperparameterReader& read, int dim, optim::Isa isa) {
  const double initial = read.Take("initial_accumulator_value", 0.1, optim::Domain::kNonNegative);
  const double epsilon = read.Take("epsilon", 1e-7, optim::Domain::kPositive);
  return std::make_unique<AdagradRows>(static_cast<float>(initial), static_cast<float>(epsilon), dim, isa);
}

std::unique_ptr<const RowRule> MakeRowWiseAdagrad(optim::HyperparameterReader& read, int dim,
                                                  optim::Isa isa) {
  const double initial = read.Take("initial_accumulator_value", 0, optim::Domain::kNonNegative);
  const double epsilon = read.Take("epsilon", 1e-8, optim::Domain::kPositive);
  return std::make_unique<RowWiseAdagrad>(static_cast<float>(initial), static_cast<float>(epsilon), dim, isa);
}

}  // namespace cairn::embedding

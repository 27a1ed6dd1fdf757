#include <algorithm>
#include <cmath>
#include <vector>

#include "embedding/optimizers/rules/row_rules.h"

namespace cairn::embedding {
namespace {

struct RmspropRowConstants {
  float rho, one_minus_rho, momentum, epsilon;
  bool centered;
};

std::vector<RowSlot> SlotsOf(const RmspropRowConstants& constants, int dim) {
  std::vector<RowSlot> slots = {{"velocity", dim}};
  if (constants.momentum > 0) slots.push_back({"momentum", dim});
  if (constants.centered) slots.push_back({"average_gradient", dim});
  return slots;
}

class RmspropRows final : public RowRule {
 public:
  RmspropRows(const RmspropRowConstants& constants, int dim, optim::Isa isa)
      : RowRule(dim, isa, SlotsOf(constants, dim)), constants_(constants) {}

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const float lr = update.learning_rate, rho = constants_.rho, one_minus_rho = constants_.one_minus_rho;
    const float mu = constants_.momentum, epsilon = constants_.epsilon;
    const bool centered = constants_.centered;
    ForEachRow(isa(), batch, n, n + slots(), [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const v = w + n;
      float* const m = v + n;
      float* const a = mu > 0 ? m + n : m;
      const auto move = [=](int64_t j, float increment) CAIRN_INLINE_LAMBDA { w[j] = w[j] - increment; };
      const auto move_with_momentum = [=](int64_t j, float increment) CAIRN_INLINE_LAMBDA {
        m[j] = mu * m[j] + increment;
        w[j] = w[j] - m[j];
      };
      const auto plain = [=](int64_t j) CAIRN_INLINE_LAMBDA {
        v[j] = rho * v[j] + one_minus_rho * (g[j] * g[j]);
        return lr * g[j] / std::sqrt(v[j] + epsilon);
      };
      const auto of_variance = [=](int64_t j) CAIRN_INLINE_LAMBDA {
        v[j] = rho * v[j] + one_minus_rho * (g[j] * g[j]);
        a[j] = rho * a[j] + one_minus_rho * g[j];
        return lr * g[j] / std::sqrt(std::max(v[j] - a[j] * a[j], 0.0f) + epsilon);
      };
      if (centered && mu > 0) {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { move_with_momentum(j, of_variance(j)); });
      } else if (centered) {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { move(j, of_variance(j)); });
      } else if (mu > 0) {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { move_with_momentum(j, plain(j)); });
      } else {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { move(j, plain(j)); });
      }
    });
  }

 private:
  const RmspropRowConstants constants_;
};

}  // namespace

std::unique_ptr<const RowRule> MakeRmspropRows(optim::HyperparameterReader& read, int dim, optim::Isa isa) {
  RmspropRowConstants constants;
  const double rho = read.Take("rho", 0.9, optim::Domain::kUnit);
  constants.rho = static_cast<float>(rho);
  constants.one_minus_rho = static_cast<float>(1 - rho);
  constants.momentum = static_cast<float>(read.Take("momentum", 0, optim::Domain::kUnit));
  constants.epsilon = static_cast<float>(read.Take("epsilon", 1e-7, optim::Domain::kPositive));
  constants.centered = read.Take("centered", 0, optim::Domain::kFlag) != 0;
  return std::make_unique<RmspropRows>(constants, dim, isa);
}

}  // namespace cairn::embedding

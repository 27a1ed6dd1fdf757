#include "embedding/optimizers/rules/row_rules.h"

namespace cairn::embedding {
namespace {

class SgdRows final : public RowRule {
 public:
  SgdRows(int dim, optim::Isa isa) : RowRule(dim, isa, {}) {}

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const float lr = update.learning_rate;
    ForEachRow(isa(), batch, n, n, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { w[j] = w[j] - lr * g[j]; });
    });
  }
};

class MomentumRows final : public RowRule {
 public:
  MomentumRows(float momentum, bool nesterov, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"momentum", dim}}), momentum_(momentum), nesterov_(nesterov) {}

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const float lr = update.learning_rate, mu = momentum_;
    const bool nesterov = nesterov_;
    ForEachRow(isa(), batch, n, 2 * n, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const m = w + n;
      if (nesterov) {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA {
          const float m_new = mu * m[j] - lr * g[j];
          m[j] = m_new;
          w[j] = w[j] + mu * m_new - lr * g[j];
        });
      } else {
        ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA {
          const float m_new = mu * m[j] - lr * g[j];
          m[j] = m_new;
          w[j] = w[j] + m_new;
        });
      }
    });
  }

 private:
  const float momentum_;
  const bool nesterov_;
};

}  // namespace

std::unique_ptr<const RowRule> MakeSgdRows(optim::HyperparameterReader& read, int dim, optim::Isa isa) {
  const auto momentum = static_cast<float>(read.Take("momentum", 0, optim::Domain::kUnit));
  const bool nesterov = read.Take("nesterov", 0, optim::Domain::kFlag) != 0;
  if (momentum == 0) return std::make_unique<SgdRows>(dim, isa);
  return std::make_unique<MomentumRows>(momentum, nesterov, dim, isa);
}

}  // namespace cairn::embedding

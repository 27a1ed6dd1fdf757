#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "embedding/optimizers/rules/row_rules.h"
#include "embedding/optimizers/rules/skipped_adam_steps.h"

namespace cairn::embedding {
namespace {

struct AdamRowConstants {
  double beta_1, beta_2, epsilon;
};

// The constants of one step.
struct AdamStep {
  AdamStep(const AdamRowConstants& constants, const RowUpdate& update)
      : alpha(static_cast<float>(update.learning_rate *
                                 std::sqrt(1 - std::pow(constants.beta_2, static_cast<double>(update.step))) /
                                 (1 - std::pow(constants.beta_1, static_cast<double>(update.step))))),
        one_minus_beta_1(static_cast<float>(1 - constants.beta_1)),
        one_minus_beta_2(static_cast<float>(1 - constants.beta_2)),
        epsilon(static_cast<float>(constants.epsilon)) {}

  // The new value of an element whose value is w and whose gradient is g.
  __attribute__((always_inline)) float Move(float w, float g, float& m, float& v) const {
    const float m_new = m + (g - m) * one_minus_beta_1;
    const float v_new = v + (g * g - v) * one_minus_beta_2;
    m = m_new;
    v = v_new;
    return w - (m_new * alpha) / (std::sqrt(v_new) + epsilon);
  }

  float alpha, one_minus_beta_1, one_minus_beta_2, epsilon;
};

class AdamRows final : public RowRule {
 public:
  AdamRows(const AdamRowConstants& constants, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"m", dim}, {"v", dim}}), constants_(constants) {}

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const AdamStep step(constants_, update);
    ForEachRow(isa(), batch, n, 3 * n, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const m = w + n;
      float* const v = m + n;
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA { w[j] = step.Move(w[j], g[j], m[j], v[j]); });
    });
  }

 private:
  const AdamRowConstants constants_;
};

// `step`: of the row's last update, as the bits of an integer.
class CatchUpAdamRows final : public RowRule {
 public:
  CatchUpAdamRows(const AdamRowConstants& constants, int dim, optim::Isa isa)
      : RowRule(dim, isa, {{"m", dim}, {"v", dim}, {"step", 1}}),
        constants_(constants),
        skipped_(constants.beta_1, constants.beta_2) {}

  void Update(const RowBatch& batch, const RowUpdate& update) const override {
    const int64_t n = dim();
    const AdamStep step(constants_, update);
    const auto now = static_cast<uint32_t>(update.step);
    const float lr = update.learning_rate;
    const SkippedAdamSteps* const skipped = &skipped_;
    ForEachRow(isa(), batch, n, 3 * n + 1, [=](float* w, const float* g) CAIRN_INLINE_LAMBDA {
      float* const m = w + n;
      float* const v = m + n;
      const SkippedAdamSteps::Skipped gap = skipped->Between(std::bit_cast<uint32_t>(v[n]), now - 1);
      v[n] = std::bit_cast<float>(now);
      ForEachColumn(n, [=](int64_t j) CAIRN_INLINE_LAMBDA {
        const float caught_up = w[j] - Missed(gap, lr * m[j], v[j], step.epsilon);
        m[j] = m[j] * gap.m_decay;
        v[j] = v[j] * gap.v_decay;
        w[j] = step.Move(caught_up, g[j], m[j], v[j]);
      });
    });
  }

  bool ReadsStoredValues() const override { return false; }
  void Read(absl::Span<const float* const> rows, const RowUpdate& at, float* values) const override {
    const int64_t n = dim();
    const auto epsilon = static_cast<float>(constants_.epsilon);
    for (const float* row : rows) {
      const float* m = row + n;
      const float* v = m + n;
      const auto gap = skipped_.Between(std::bit_cast<uint32_t>(v[n]), static_cast<uint32_t>(at.step));
      for (int64_t j = 0; j < n; ++j)
        values[j] = row[j] - Missed(gap, at.learning_rate * m[j], v[j], epsilon);
      values += n;
    }
  }

 private:
  // How far the skipped steps move an element; m_rate is the learning rate times m.
  __attribute__((always_inline)) static float Missed(const SkippedAdamSteps::Skipped& gap, float m_rate,
                                                     float v, float epsilon) {
    const float denominator = std::sqrt(v) + epsilon;
    const float q = epsilon / denominator;
    return m_rate * (gap.sums[0] - q * (gap.sums[1] - q * (gap.sums[2] - q * gap.sums[3]))) / denominator;
  }

  const AdamRowConstants constants_;
  const SkippedAdamSteps skipped_;
};

}  // namespace

std::unique_ptr<const RowRule> MakeAdamRows(optim::HyperparameterReader& read, int dim, optim::Isa isa) {
  AdamRowConstants constants;
  constants.beta_1 = read.Take("beta_1", 0.9, optim::Domain::kBelowOne);
  constants.beta_2 = read.Take("beta_2", 0.999, optim::Domain::kBelowOne);
  constants.epsilon = read.Take("epsilon", 1e-7, optim::Domain::kPositive);
  read.RefuseUnless("amsgrad", 0);
  const bool catch_up = read.Take("catch_up", 0, optim::Domain::kFlag) != 0;
  if (!catch_up) return std::make_unique<AdamRows>(constants, dim, isa);
  using Steps = SkippedAdamSteps;
  if (constants.beta_1 > Steps::kMaxBeta1 || constants.beta_2 < Steps::kMinBeta2 ||
      constants.beta_2 > Steps::kMaxBeta2) {
    read.Report(absl::StrCat("catch_up needs a beta_1 of at most ", Steps::kMaxBeta1, " and a beta_2 from ",
                             Steps::kMinBeta2, " to ", Steps::kMaxBeta2, ", not ", constants.beta_1, " and ",
                             constants.beta_2));
    return nullptr;  // the reader has the fault
  }
  return std::make_unique<CatchUpAdamRows>(constants, dim, isa);
}

}  // namespace cairn::embedding

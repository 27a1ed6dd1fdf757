#include "embedding/optimizers/rules/skipped_adam_steps.h"

#include <algorithm>
#include <cmath>

namespace cairn::embedding {

SkippedAdamSteps::SkippedAdamSteps(double beta_1, double beta_2) : beta_2_(beta_2) {
  const double x = 1 / std::sqrt(beta_2), d = x - 1, rho = beta_1 * x;
  // The largest of the tails is that of S_3, whose terms fall by rho x^3.
  const double slowest = rho * x * x * x;
  const int horizon = slowest > 0 ? static_cast<int>(std::log(1e-12) / std::log(slowest)) + 1 : 1;
  for (int n = 0; n <= horizon; ++n) {
    rho_powers_.push_back(std::pow(rho, n));
    root_powers_.push_back(std::pow(x, n));
    beta_1_powers_.push_back(std::pow(beta_1, n));
  }
  // From the sums after step s + 1 those after step s: each k becomes k + 1, and d_(k+1) = x d_k + d.
  const auto step_back = [=](double c, const Sums& next) -> Sums {
    return {rho * (c + next[0]), rho * (c * d + x * next[1] + d * next[0]),
            rho * (c * d * d + x * x * next[2] + 2 * x * d * next[1] + d * d * next[0]),
            rho * (c * d * d * d + x * x * x * next[3] + 3 * x * x * d * next[2] + 3 * x * d * d * next[1] +
                   d * d * d * next[0])};
  };
  Sums sums{};
  for (int k = 0; k < horizon; ++k) sums = step_back(1, sums);
  const int settled = static_cast<int>(std::log(1e-8) / std::log(beta_2)) + 1;
  sums_.resize(static_cast<size_t>(settled) + 1);
  sums_.back() = sums;
  for (int s = settled - 1; s >= 0; --s) {
    const double correction = std::sqrt(1 - std::pow(beta_2, s + 1)) / (1 - std::pow(beta_1, s + 1));
    sums_[static_cast<size_t>(s)] = sums = step_back(correction, sums);
  }
}

const SkippedAdamSteps::Sums& SkippedAdamSteps::SumsFrom(uint32_t s) const {
  return sums_[std::min(static_cast<size_t>(s), sums_.size() - 1)];
}

SkippedAdamSteps::Skipped SkippedAdamSteps::Between(uint32_t last, uint32_t through) const {
  if (last >= through) return {{}, 1, 1};
  const uint32_t n = through - last;
  Sums sums = SumsFrom(last);
  if (n > horizon()) {
    return {{static_cast<float>(sums[0]), static_cast<float>(sums[1]), static_cast<float>(sums[2]),
             static_cast<float>(sums[3])},
            0,
            static_cast<float>(std::pow(beta_2_, n))};
  }
  // Less what follows step `through`, where d_(n+k) = x^n d_k + d_n.
  const Sums& after = SumsFrom(through);
  const double x = root_powers_[n], d = x - 1, power = rho_powers_[n];
  sums[0] -= power * after[0];
  sums[1] -= power * (x * after[1] + d * after[0]);
  sums[2] -= power * (x * x * after[2] + 2 * x * d * after[1] + d * d * after[0]);
  sums[3] -= power * (x * x * x * after[3] + 3 * x * x * d * after[2] + 3 * x * d * d * after[1] +
                      d * d * d * after[0]);
  return {{static_cast<float>(sums[0]), static_cast<float>(sums[1]), static_cast<float>(sums[2]),
           static_cast<float>(sums[3])},
          static_cast<float>(beta_1_powers_[n]),
          static_cast<float>(1 / (x * x))};
}

}  // namespace cairn::embedding

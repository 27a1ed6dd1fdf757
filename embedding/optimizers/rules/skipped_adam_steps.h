// Adam's steps with a gradient of 0, in closed form.
//
// After step s, n such steps move the value by
//
//   lr m sum_{k=1..n} c(s+k) beta_1^k / (beta_2^(k/2) root + epsilon),      root = sqrt(v)
//
// with the correction c(u) = sqrt(1 - beta_2^u) / (1 - beta_1^u), and multiply m and v by beta_1^n and beta_2^n. With
// D = root + epsilon, q = epsilon / D, rho = beta_1 / sqrt(beta_2) and d_k = beta_2^(-k/2) - 1, a term is
// c(s+k) rho^k / (D (1 + q d_k)). Its expansion to the third power of q d_k leaves four sums
//
//   S_j = sum_{k=1..n} c(s+k) rho^k d_k^j,    move = lr m (S_0 - q S_1 + q^2 S_2 - q^3 S_3) / D
//
// that depend on s and n only. The relative error is about 24 (beta_2^(-1/2) - 1)^4 / (1 - rho)^4 q^4: 2e-8 q^4 for
// the default betas. More than horizon() steps are taken as infinitely many: what follows is below 1e-12 of the whole.
//
// Constant after construction, used by any thread. It takes 32 bytes for each step until the correction is 1 to
// rounding: 0.6 MB for a beta_2 of 0.999.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace cairn::embedding {

class SkippedAdamSteps {
 public:
  static constexpr double kMaxBeta1 = 0.95, kMinBeta2 = 0.99, kMaxBeta2 = 0.9999;

  // The betas are within the limits above.
  SkippedAdamSteps(double beta_1, double beta_2);

  struct Skipped {
    std::array<float, 4> sums;  // S_0 to S_3
    float m_decay, v_decay;     // beta_1^n (0 beyond the horizon) and beta_2^n
  };
  // The steps last + 1 to `through`; none if last >= through.
  Skipped Between(uint32_t last, uint32_t through) const;

  uint32_t horizon() const { return static_cast<uint32_t>(rho_powers_.size() - 1); }

 private:
  using Sums = std::array<double, 4>;
  // The sums over all k >= 1 after step s.
  const Sums& SumsFrom(uint32_t s) const;

  double beta_2_;
  std::vector<Sums> sums_;             // [s], to the step from which the correction is 1
  std::vector<double> rho_powers_;     // [n] rho^n, to the horizon
  std::vector<double> root_powers_;    // [n] beta_2^(-n/2)
  std::vector<double> beta_1_powers_;  // [n] beta_1^n
};

}  // namespace cairn::embedding

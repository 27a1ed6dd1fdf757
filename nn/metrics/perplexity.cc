// The perplexity of predicted tokens: exp of the mean cross entropy (keras_hub/src/metrics/perplexity.py).
#include <cmath>
#include <memory>

#include "kernels/cpu/log_sum.h"
#include "kernels/formulas.h"
#include "nn/metrics/metric.h"

namespace cairn::nn {
namespace {

class Perplexity final : public Metric {
 public:
  explicit Perplexity(const MetricParams& params) : params_(params) {}

  void Update(absl::Span<const float> outputs, absl::Span<const float> targets,
              absl::Span<const float> weights) override {
    const auto width = static_cast<size_t>(params_.width);
    const auto rows = static_cast<size_t>(params_.rows_per_example);
    for (size_t row = 0; row < targets.size(); ++row) {
      const auto token = static_cast<size_t>(targets[row]);
      if (static_cast<int64_t>(token) == params_.mask_token_id) continue;
      const double weight = weights.empty() ? 1.0 : double{weights[row / rows]};
      crossentropy_ += weight * Crossentropy(outputs.subspan(row * width, width), token);
      tokens_ += weight;
    }
  }
  double Result() const override { return tokens_ == 0 ? 0 : std::exp(crossentropy_ / tokens_); }
  void Reset() override { crossentropy_ = tokens_ = 0; }

 private:
  // -log of the probability of `token`.
  double Crossentropy(absl::Span<const float> outputs, size_t token) const {
    if (params_.from_logits) {
      const kernels::cpu::LogSum row = kernels::cpu::LogSumOf(outputs);
      return double{kernels::LogitLoss(outputs[token], row.largest, row.log_sum)};
    }
    double sum = 0;
    for (const float probability : outputs) sum += double{probability};
    return double{kernels::ProbabilityLoss(outputs[token], static_cast<float>(sum))};
  }

  const MetricParams params_;
  double crossentropy_ = 0, tokens_ = 0;
};

}  // namespace

std::unique_ptr<Metric> MakePerplexity(const MetricParams& params) {
  return std::make_unique<Perplexity>(params);
}

}  // namespace cairn::nn

// The cross entropy of a prediction, also called log loss (keras/src/metrics/probabilistic_metrics.py).
#include "kernels/formulas.h"
#include "nn/metrics/example_mean.h"

namespace cairn::nn {
namespace {

class BinaryCrossentropy final : public ExampleMean {
 public:
  explicit BinaryCrossentropy(const MetricParams& params)
      : ExampleMean(params),
        smoothing_(kernels::MakeSmoothing(
            {.kind = kernels::LossKind::kBinaryCrossentropy, .label_smoothing = params.label_smoothing})) {}

 private:
  double OfExample(absl::Span<const float> outputs, absl::Span<const float> targets) const override {
    return params().from_logits
               ? MeanOf(kernels::BinaryCrossentropyOfLogits{smoothing_}, outputs, targets)
               : MeanOf(kernels::BinaryCrossentropyOfProbabilities{smoothing_}, outputs, targets);
  }

  template <typename Formula>
  static double MeanOf(const Formula& formula, absl::Span<const float> outputs,
                       absl::Span<const float> targets) {
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) sum += double{formula.Value(outputs[i], targets[i])};
    return sum / static_cast<double>(outputs.size());
  }

  const kernels::LabelSmoothing smoothing_;
};

}  // namespace

std::unique_ptr<Metric> MakeBinaryCrossentropy(const MetricParams& params) {
  return std::make_unique<BinaryCrossentropy>(params);
}

}  // namespace cairn::nn

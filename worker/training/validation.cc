#include "worker/training/validation.h"

#include "common/core/status.h"

namespace cairn::worker {

Validation::Validation(const Trainer& trainer) : trainer_(trainer) {
  const TrainingSetup& setup = trainer.deps().setup;
  if (!setup.options.validation || setup.data.validation == nullptr) return;
  evaluator_.emplace(*setup.data.validation, setup.model, trainer.deps().replica, setup.metrics,
                     setup.validation_buckets);
}

absl::StatusOr<nn::MetricValues> Validation::Evaluate() {
  const client::StepExchange& steps = trainer_.deps().steps;
  if (version_ != steps.version()) {
    const TraceSpan span(trainer_.deps().instruments.trace, TraceLane::kEvaluate, "evaluate",
                         {.step = steps.version()});
    CAIRN_ASSIGN_OR_RETURN(metrics_,
                           evaluator_->Run(steps.parameters(), [this] { return trainer_.stopped(); }));
    version_ = steps.version();
  }
  return metrics_;
}

}  // namespace cairn::worker

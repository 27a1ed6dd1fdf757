// The metrics of the validation set for the current parameters, computed once for each version of them.
//
// Owned by Chief; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "nn/metrics.h"
#include "worker/training/evaluator.h"
#include "worker/training/trainer.h"

namespace cairn::worker {

class Validation {
 public:
  // `trainer` must outlive the object.
  explicit Validation(const Trainer& trainer);

  // Whether the job has a validation set that is to be evaluated.
  bool exists() const { return evaluator_.has_value(); }
  // The metrics; may be called only if they exist. Errors are those of Evaluator::Run(): CANCELLED after
  // Trainer::Stop().
  absl::StatusOr<nn::MetricValues> Evaluate();
  // The values of the current version may have been replaced.
  void Forget() { version_ = -1; }

 private:
  const Trainer& trainer_;
  std::optional<Evaluator> evaluator_;
  int64_t version_ = -1;  // the version that `metrics_` belong to; -1: none
  nn::MetricValues metrics_;
};

}  // namespace cairn::worker

#include "worker/allreduce/ring_steps.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::allreduce {

TimePoint RingSteps::StepDeadline() const {
  return std::chrono::steady_clock::now() + options_.step_timeout;
}

client::Step& RingSteps::BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t) {
  ring_->Begin(examples, gradients, end_wanted_, learning_rate_wanted_);
  return *this;
}

client::Step& RingSteps::BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean,
                                           int64_t examples) {
  devices_.Begin(gradients, mean);
  return BeginStep({}, examples, 0);
}

void RingSteps::Announce(int variable) {
  if (devices_.sums()) {
    devices_.Announce(variable);
  } else {
    ring_->Announce(variable);
  }
}

absl::StatusOr<Ring::Step> RingSteps::Await() {
  auto step = ring_->Await(StepDeadline());
  if (!step.ok()) return Named(step.status());
  return step;
}

absl::Status RingSteps::MeanOverWorkers(absl::Span<double> values) {
  return Named(ring_->means().Mean(values, StepDeadline()));
}

absl::Status RingSteps::SkipMeans() {
  ring_->means().Skip();
  return absl::OkStatus();
}

absl::Status RingSteps::Named(const absl::Status& status) const {
  if (!absl::IsDeadlineExceeded(status)) return status;
  std::string who;
  for (size_t worker = 0; worker < options_.names.size(); ++worker) {
    absl::StrAppend(&who, worker == 0 ? "" : ", ", worker, ": ", options_.names[worker]);
  }
  return Annotate(
      status, absl::StrCat("no progress for ", ToSeconds(options_.step_timeout), " s; the ring is ", who));
}

absl::StatusOr<client::StepResult> RingSteps::Finish() {
  CAIRN_ASSIGN_OR_RETURN(Ring::Step step, Await());
  CAIRN_RETURN_IF_ERROR(devices_.Await(step));
  if (step.records[0].has_learning_rate()) state_.SetLearningRate(step.records[0].learning_rate());
  learning_rate_wanted_.reset();
  if (step.end) {
    state_.EndHere();
    finished_ = true;
    return client::StepResult{.outcome = v1::OUTCOME_FINISHED};
  }
  CAIRN_RETURN_IF_ERROR(state_.Apply(step.mean, step.examples, static_cast<int64_t>(step.records.size())));
  if (version() == state_.final_version()) CAIRN_RETURN_IF_ERROR(Close());
  return client::StepResult{.outcome = v1::OUTCOME_ACCEPTED};
}

absl::Status RingSteps::Close() {
  ring_->Begin(0, {}, /*end=*/true);
  CAIRN_RETURN_IF_ERROR(Await().status());
  finished_ = true;
  return absl::OkStatus();
}

absl::Status RingSteps::PassRound() {
  ring_->Begin(0, {}, /*end=*/true);
  return ring_->Await(StepDeadline()).status();
}

absl::Status RingSteps::End() {
  end_wanted_ = true;
  return BeginStep({}, 0, 0).Finish().status();
}

}  // namespace cairn::allreduce

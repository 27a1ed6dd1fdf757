#include "worker/allreduce/ring_means.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::allreduce {

void RingMeans::BeginStep(int64_t step, int64_t examples) {
  MutexLock lock(mutex_);
  step_ = step;
  examples_ = examples;
  next_ = 0;
  steps_.erase(steps_.begin(), steps_.lower_bound(step));
}

void RingMeans::Send(const v1::BatchPart& part) const {
  v1::RingHeader header;
  *header.mutable_batch() = part;
  send_(header, {}, nullptr);
}

void RingMeans::Keep(const v1::BatchPart& part) {
  Step& step = steps_[part.step()];
  if (part.examples() == 0) {
    step.skipped.insert(part.worker());
  } else {
    step.means[part.index()][part.worker()] = part;
  }
  changed_.NotifyAll();
}

std::vector<int> RingMeans::Missing(int64_t index) {
  const Step& step = steps_[step_];
  const auto mean = step.means.find(index);
  std::vector<int> missing;
  for (int worker = 0; worker < workers_; ++worker) {
    const bool here = mean != step.means.end() && mean->second.count(worker) != 0;
    if (!here && step.skipped.count(worker) == 0) missing.push_back(worker);
  }
  return missing;
}

absl::Status RingMeans::Mean(absl::Span<double> values, TimePoint deadline) {
  if (values.empty() || values.size() > kMaxValues) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " values for one mean over the workers, not 1 to ", kMaxValues));
  }
  v1::BatchPart own;
  own.set_worker(worker_);
  own.mutable_values()->Add(values.begin(), values.end());
  {
    MutexLock lock(mutex_);
    own.set_step(step_);
    own.set_index(next_++);
    own.set_examples(examples_);
    Keep(own);
  }
  if (workers_ > 1) Send(own);
  MutexLock lock(mutex_);
  while (failure_.ok() && !Missing(own.index()).empty()) {
    if (changed_.WaitUntil(mutex_, deadline) || Missing(own.index()).empty() || !failure_.ok()) continue;
    return absl::DeadlineExceededError(absl::StrCat("synchronized batch normalization in step ", step_,
                                                    " lacks the workers at positions ",
                                                    absl::StrJoin(Missing(own.index()), ", ")));
  }
  if (!Missing(own.index()).empty()) return failure_;
  const auto& parts = steps_[step_].means[own.index()];
  double total = 0;
  std::fill(values.begin(), values.end(), 0);
  for (const auto& [worker, part] : parts) {
    if (static_cast<size_t>(part.values_size()) != values.size()) {
      return absl::InvalidArgumentError(absl::StrCat("ring: worker ", worker, " has ", part.values_size(),
                                                     " values for a mean of ", values.size(),
                                                     ": the workers' models or options differ"));
    }
    const auto weight = static_cast<double>(part.examples());
    total += weight;
    for (size_t i = 0; i < values.size(); ++i) values[i] += weight * part.values(static_cast<int>(i));
  }
  for (double& value : values) value /= total;
  steps_[step_].means.erase(own.index());
  return absl::OkStatus();
}

void RingMeans::Skip() {
  v1::BatchPart own;
  own.set_worker(worker_);
  {
    MutexLock lock(mutex_);
    own.set_step(step_);
    Keep(own);
  }
  if (workers_ > 1) Send(own);
}

absl::Status RingMeans::CheckPart(const v1::BatchPart& part) const {
  const int worker = part.worker();
  const bool worker_exists = worker >= 0 && worker < workers_ && worker != worker_;
  const bool fits = part.examples() >= 0 && part.index() >= 0 && part.index() < kMaxMeans &&
                    part.values_size() <= kMaxValues;
  if (!worker_exists || !fits) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid values of worker ", worker, " for mean ",
                                                   part.index(), " of ", part.examples(), " examples"));
  }
  if (part.step() != step_ && part.step() != step_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring: values of step ", part.step(), " arrived during step ", step_));
  }
  const auto step = steps_.find(part.step());
  if (step == steps_.end()) return absl::OkStatus();
  const auto mean = step->second.means.find(part.index());
  if (step->second.skipped.count(worker) == 0 &&
      (mean == step->second.means.end() || mean->second.count(worker) == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("ring: worker ", worker, " has sent its values for mean ",
                                                 part.index(), " of step ", part.step(), " before"));
}

absl::Status RingMeans::OnPart(const v1::BatchPart& part) {
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(CheckPart(part));
  }
  // Passed on before this worker can continue, so that frames of a step come before frames of the next step.
  if ((worker_ + 1) % workers_ != part.worker()) Send(part);
  MutexLock lock(mutex_);
  Keep(part);
  return absl::OkStatus();
}

void RingMeans::Fail(const absl::Status& reason) {
  MutexLock lock(mutex_);
  failure_.Update(reason);
  changed_.NotifyAll();
}

}  // namespace cairn::allreduce

#include "ps/job/batch_means.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "ps/job/wait_list.h"

namespace cairn::ps {
namespace {

OpenRound RoundOf(ActiveJob& job) {
  return job.sequencer()->open_round();
}

}  // namespace

void BatchMeans::Add(const v1::BatchMeanRequest& request, ActiveJob& job, TimePoint now, Reply reply,
                     Calls& calls) {
  absl::Status refused;
  if (job.sequencer() == nullptr || job.job().mode() != v1::MODE_SYNC) {
    refused = absl::FailedPreconditionError("this server makes no synchronous rounds");
  }
  OpenRound round;
  if (refused.ok()) {
    round = RoundOf(job);
    Follow(job, round);
    refused = Check(request, job, round);
  }
  if (refused.ok()) refused = Take(request, job);
  if (!refused.ok()) {
    calls.push_back([reply = std::move(reply), refused]() mutable { reply(refused); });
    return;
  }
  waiters_.push_back({.worker = request.worker(),
                      .version = request.version(),
                      .index = request.index(),
                      .deadline = WaitList::DeadlineFor(request.wait_seconds(), now),
                      .reply = std::move(reply)});
  Collect(&job, now, calls);
}

void BatchMeans::Follow(const ActiveJob& job, const OpenRound& round) {
  if (layout_ == job.layout() && version_ == round.version) return;
  layout_ = job.layout();
  version_ = round.version;
  examples_.clear();
  means_.clear();
  numbers_ = 0;
}

absl::Status BatchMeans::Check(const v1::BatchMeanRequest& request, ActiveJob& job,
                               const OpenRound& round) const {
  const std::string name = job.members().NameOf(request.worker());
  CAIRN_RETURN_IF_ERROR(job.members().CheckIncarnationGiven(request.worker(), request.incarnation()));
  if (!job.members().IsLive(request.worker(), request.incarnation()) ||
      !absl::c_linear_search(round.workers, request.worker())) {
    return absl::AbortedError(absl::StrCat(name, " is not a member of the round of version ", round.version));
  }
  if (request.version() < round.version) {
    return absl::AbortedError(
        absl::StrCat("the round of version ", request.version(), " has ended without ", name));
  }
  const auto is_mean = [](int64_t index) { return index >= 0 && index < kMaxMeans; };
  if (request.version() > round.version || request.examples() < 0 || !is_mean(request.index()) ||
      !is_mean(request.first()) || request.parts_size() > kMaxMeans - request.first()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": mean ", request.index(), " of version ", request.version(), " with values from ",
        request.first(), " on is not one of the ", kMaxMeans, " of version ", round.version));
  }
  return absl::OkStatus();
}

absl::Status BatchMeans::Take(const v1::BatchMeanRequest& request, ActiveJob& job) {
  const int worker = request.worker();
  const std::string name = job.members().NameOf(worker);
  examples_[worker] = request.examples();
  if (request.examples() == 0) return absl::OkStatus();
  for (int part = 0; part < request.parts_size(); ++part) {
    const auto& values = request.parts(part).values();
    const auto index = static_cast<size_t>(request.first() + part);
    if (values.empty() || values.size() > kMaxValues) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", values.size(), " values for one mean, not 1 to ", kMaxValues));
    }
    if (index >= means_.size()) means_.resize(index + 1);
    Mean& mean = means_[index];
    if (!mean.mean.empty()) continue;
    if (!mean.parts.empty() && mean.parts.begin()->second.size() != static_cast<size_t>(values.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", values.size(), " values for mean ", index, " of version ", version_, ", ",
                       job.members().NameOf(mean.parts.begin()->first), " has ",
                       mean.parts.begin()->second.size(), ": their models or options differ"));
    }
    if (numbers_ + values.size() > kMaxNumbers) {
      return absl::InvalidArgumentError(
          absl::StrCat("the means of one step have more than ", kMaxNumbers, " values of all workers"));
    }
    std::vector<double>& kept = mean.parts[worker];
    numbers_ += values.size() - static_cast<int64_t>(kept.size());
    kept.assign(values.begin(), values.end());
  }
  return absl::OkStatus();
}

bool BatchMeans::HasValuesFor(int worker, int64_t index) const {
  const auto examples = examples_.find(worker);
  if (examples == examples_.end()) return false;
  if (examples->second == 0) return true;
  return index < static_cast<int64_t>(means_.size()) &&
         means_[static_cast<size_t>(index)].parts.count(worker) != 0;
}

void BatchMeans::Complete(const OpenRound& round) {
  for (size_t index = 0; index < means_.size(); ++index) {
    Mean& mean = means_[index];
    if (!mean.mean.empty() || !absl::c_all_of(round.workers, [&](int worker) {
          return HasValuesFor(worker, static_cast<int64_t>(index));
        })) {
      continue;
    }
    double total = 0;
    std::vector<double> sum;
    for (const int worker : round.workers) {  // in ascending order, so that the sum is the same on every run
      const auto part = mean.parts.find(worker);
      if (part == mean.parts.end()) continue;
      const auto weight = static_cast<double>(examples_[worker]);
      total += weight;
      sum.resize(part->second.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * part->second[i];
    }
    if (total == 0) continue;
    for (double& value : sum) value /= total;
    mean.mean = std::move(sum);
    for (const auto& [worker, part] : mean.parts) numbers_ -= static_cast<int64_t>(part.size());
    numbers_ += static_cast<int64_t>(mean.mean.size());
    mean.parts.clear();
  }
}

bool BatchMeans::Holds(const Waiter& waiter, ActiveJob& job, const OpenRound& round,
                       v1::BatchMeanResponse& response) const {
  const auto index = static_cast<size_t>(waiter.index);
  const auto made = [&](size_t mean) { return mean < means_.size() && !means_[mean].mean.empty(); };
  size_t known = 0;
  while (known <= index && (made(known) || HasValuesFor(waiter.worker, static_cast<int64_t>(known)))) ++known;
  response.set_known(static_cast<int64_t>(known));
  const auto examples = examples_.find(waiter.worker);
  if (made(index)) {
    response.mutable_mean()->Add(means_[index].mean.begin(), means_[index].mean.end());
    return true;
  }
  std::vector<std::string> missing;
  for (const int worker : round.workers) {
    if (!HasValuesFor(worker, waiter.index)) missing.push_back(job.members().NameOf(worker));
  }
  response.set_missing(absl::StrJoin(missing, ", "));
  // A worker without examples waits for nothing, and one whose earlier values are missing sends them at once.
  return (examples != examples_.end() && examples->second == 0) || known <= index;
}

void BatchMeans::Collect(ActiveJob* job, TimePoint now, Calls& calls) {
  if (waiters_.empty()) return;
  if (job == nullptr || job->sequencer() == nullptr || job->layout() != layout_) {
    return Fail(absl::AbortedError("the job has been created again"), calls);
  }
  const OpenRound round = RoundOf(*job);
  Follow(*job, round);
  Complete(round);
  std::vector<Waiter> still;
  for (Waiter& waiter : waiters_) {
    absl::StatusOr<v1::BatchMeanResponse> answer = v1::BatchMeanResponse();
    if (waiter.version != round.version) {
      answer = absl::AbortedError(absl::StrCat("the round of version ", waiter.version, " has ended without ",
                                               job->members().NameOf(waiter.worker)));
    } else if (const bool due = Holds(waiter, *job, round, *answer); !due && now < waiter.deadline) {
      still.push_back(std::move(waiter));
      continue;
    } else {
      answer->set_holds(answer->mean_size() > 0);
    }
    calls.push_back([reply = std::move(waiter.reply), answer = std::move(answer)]() mutable {
      reply(std::move(answer));
    });
  }
  waiters_ = std::move(still);
}

void BatchMeans::Fail(const absl::Status& failure, Calls& calls) {
  for (Waiter& waiter : waiters_) {
    calls.push_back([reply = std::move(waiter.reply), failure]() mutable { reply(failure); });
  }
  waiters_.clear();
}

}  // namespace cairn::ps

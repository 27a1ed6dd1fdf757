#include "ps/policy/ssp_policy.h"

#include <algorithm>

namespace cairn::ps {

std::vector<Decision> SspPolicy::OnJoin(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  const auto deferred = deferred_.find(worker);
  if (deferred != deferred_.end() && deferred->second.incarnation != incarnation)
    ReleaseAnswerOf(worker, decisions);
  roster_.Join(worker, incarnation);
  // A worker that comes back resumes at its own clock, within two bounds. It starts no lower than the slowest
  // clock, so that no worker waits for it to catch up. It starts no higher than max_staleness above the
  // slowest clock, so that it may continue at once.
  int64_t& clock = clocks_[worker];
  clock = slowest_ + std::clamp<int64_t>(clock - slowest_, 0, *config_.max_staleness);
  FindSlowest();
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<Decision> SspPolicy::OnLeave(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  if (!roster_.Leave(worker, incarnation)) return decisions;
  ReleaseAnswerOf(worker, decisions);
  FindSlowest();
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<Decision> SspPolicy::OnGradient(const Gradient& gradient) {
  if (roster_.IsRepeat(gradient.key)) {
    ++counters_.duplicate;
    return {};
  }
  const int worker = gradient.key.worker;
  std::optional<Refuse> refusal = roster_.Admit(gradient, Window());
  if (!refusal.has_value() && deferred_.count(worker) != 0) {
    refusal = Refuse{gradient.key, Refuse::Reason::kSecondInRound};
  }
  if (refusal.has_value()) {
    counters_.Add(*refusal);
    return {*refusal};
  }
  const int64_t staleness = version_ - gradient.base_version;
  ++version_;
  ++clocks_[worker];
  FindSlowest();
  const bool deferred = !MayGoOn(worker) && !Window().Finished();
  if (deferred) deferred_[worker] = gradient.key;
  std::vector<Decision> decisions = {Apply{version_, {gradient}, staleness, deferred}};
  counters_.Add(decisions.front());
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<Decision> SspPolicy::OnEnd() {
  std::vector<Decision> decisions;
  if (!Window().Finished()) final_version_ = version_;
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<int> SspPolicy::WaitingFor() const {
  if (deferred_.empty()) return {};
  std::vector<int> waiting;
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!roster_.WasHeardOf(worker) && ClockOf(worker) == slowest_) waiting.push_back(worker);
  }
  for (int worker : roster_.LiveWorkers()) {
    if (ClockOf(worker) == slowest_) waiting.push_back(worker);
  }
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

int64_t SspPolicy::ClockOf(int worker) const {
  const auto found = clocks_.find(worker);
  return found == clocks_.end() ? 0 : found->second;
}

void SspPolicy::FindSlowest() {
  std::vector<int> counted = roster_.LiveWorkers();
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!roster_.WasHeardOf(worker)) counted.push_back(worker);
  }
  if (counted.empty()) return;
  int64_t slowest = ClockOf(counted.front());
  for (int worker : counted) slowest = std::min(slowest, ClockOf(worker));
  slowest_ = slowest;
}

void SspPolicy::ReleaseAnswerOf(int worker, std::vector<Decision>& decisions) {
  const auto deferred = deferred_.find(worker);
  if (deferred == deferred_.end()) return;
  decisions.push_back(Release{deferred->second});
  deferred_.erase(deferred);
}

void SspPolicy::ReleaseAnswers(std::vector<Decision>& decisions) {
  const std::map<int, PushKey> deferred = deferred_;
  for (const auto& [worker, key] : deferred) {
    if (MayGoOn(worker) || Window().Finished()) ReleaseAnswerOf(worker, decisions);
  }
}

PolicyState SspPolicy::Save() const {
  return {.version = version_,
          .final_version = final_version_,
          .roster = roster_.Save(),
          .clocks = clocks_,
          .slowest = slowest_,
          .deferred = deferred_,
          .counters = counters_};
}

void SspPolicy::Restore(const PolicyState& state) {
  version_ = state.version;
  final_version_ = state.final_version;
  roster_.Restore(state.roster);
  clocks_ = state.clocks;
  slowest_ = state.slowest;
  deferred_ = state.deferred;
  counters_ = state.counters;
}

}  // namespace cairn::ps

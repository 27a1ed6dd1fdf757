#include "ps/policy/ssp_policy.h"

#include <algorithm>

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

std::vector<Decision> SspPolicy::OnJoin(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  const auto deferred = deferred_.find(worker);
  if (deferred != deferred_.end() && deferred->second.incarnation != incarnation)
    ReleaseAnswerOf(worker, decisions);
  core_.roster.Join(worker, incarnation);
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
  if (!core_.roster.Leave(worker, incarnation)) return decisions;
  ReleaseAnswerOf(worker, decisions);
  FindSlowest();
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<Decision> SspPolicy::OnGradient(const Gradient& gradient) {
  if (core_.roster.IsRepeat(gradient.key)) {
    ++core_.counters.duplicate;
    return {};
  }
  const int worker = gradient.key.worker;
  std::optional<Refuse> refusal = core_.roster.Admit(gradient, core_.Window(/*max_staleness=*/std::nullopt));
  if (!refusal.has_value() && deferred_.count(worker) != 0) {
    refusal = Refuse{gradient.key, Refuse::Reason::kSecondInRound};
  }
  if (refusal.has_value()) {
    core_.counters.Add(*refusal);
    return {*refusal};
  }
  const int64_t staleness = core_.version - gradient.base_version;
  ++core_.version;
  ++clocks_[worker];
  FindSlowest();
  const bool deferred = !MayGoOn(worker) && !core_.Finished();
  if (deferred) deferred_[worker] = gradient.key;
  std::vector<Decision> decisions = {Apply{core_.version, {gradient}, staleness, deferred}};
  core_.counters.Add(decisions.front());
  ReleaseAnswers(decisions);
  return decisions;
}

std::vector<Decision> SspPolicy::OnEnd() {
  std::vector<Decision> decisions;
  if (!core_.Finished()) core_.final_version = core_.version;
  ReleaseAnswers(decisions);
  return decisions;
}

NextUpdate SspPolicy::next_update() const {
  if (deferred_.empty()) return {};
  std::vector<int> waiting;
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!core_.roster.WasHeardOf(worker) && ClockOf(worker) == slowest_) waiting.push_back(worker);
  }
  for (int worker : core_.roster.LiveWorkers()) {
    if (ClockOf(worker) == slowest_) waiting.push_back(worker);
  }
  std::sort(waiting.begin(), waiting.end());
  return {.waiting_for = std::move(waiting)};
}

int64_t SspPolicy::ClockOf(int worker) const {
  const auto found = clocks_.find(worker);
  return found == clocks_.end() ? 0 : found->second;
}

void SspPolicy::FindSlowest() {
  std::vector<int> counted = core_.roster.LiveWorkers();
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!core_.roster.WasHeardOf(worker)) counted.push_back(worker);
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
    if (MayGoOn(worker) || core_.Finished()) ReleaseAnswerOf(worker, decisions);
  }
}

google::protobuf::Any SspPolicy::Save() const {
  v1::SspPolicyState state;
  *state.mutable_core() = core_.Save();
  state.mutable_clocks()->insert(clocks_.begin(), clocks_.end());
  state.set_slowest(slowest_);
  for (const auto& [worker, key] : deferred_) *state.add_deferred() = ToProto(key);
  return Pack(state);
}

absl::Status SspPolicy::Load(const google::protobuf::Any& state) {
  v1::SspPolicyState saved;
  CAIRN_RETURN_IF_ERROR(Unpack(state, saved));
  CAIRN_RETURN_IF_ERROR(CheckCount("the slowest clock", saved.slowest()));
  for (const auto& [worker, clock] : saved.clocks()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(worker, config_.most_workers));
    CAIRN_RETURN_IF_ERROR(CheckCount("a clock", clock));
  }
  std::map<int, PushKey> deferred;
  for (const v1::PushKey& key : saved.deferred()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(key.worker(), config_.most_workers));
    deferred[key.worker()] = FromProto(key);
  }
  CAIRN_RETURN_IF_ERROR(core_.Load(saved.core(), config_.most_workers));
  clocks_ = {saved.clocks().begin(), saved.clocks().end()};
  slowest_ = saved.slowest();
  deferred_ = std::move(deferred);
  return absl::OkStatus();
}

}  // namespace cairn::ps

#include "ps/policy/sync_policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

std::vector<Decision> SyncPolicy::OnJoin(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  const Gradient* staged = StagedOf(worker);
  if (staged != nullptr && staged->key.incarnation != incarnation) {
    RefuseStaged(worker, Refuse::Reason::kOldIncarnation, decisions);
  }
  core_.roster.Join(worker, incarnation);
  CloseRoundIfComplete(decisions);  // the first round may have waited for this worker only
  return Counted(std::move(decisions));
}

std::vector<Decision> SyncPolicy::OnLeave(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  if (!core_.roster.Leave(worker, incarnation)) return decisions;
  RefuseStaged(worker, Refuse::Reason::kNotAMember, decisions);
  CloseRoundIfComplete(decisions);
  return Counted(std::move(decisions));
}

std::vector<Decision> SyncPolicy::OnGradient(const Gradient& gradient) {
  if (core_.roster.IsRepeat(gradient.key)) {
    ++core_.counters.duplicate;
    return {};
  }
  std::vector<Decision> decisions;
  if (std::optional<Refuse> refusal = core_.roster.Admit(gradient, core_.Window(/*max_staleness=*/0))) {
    decisions.push_back(*refusal);
  } else if (StagedOf(gradient.key.worker) != nullptr) {
    decisions.push_back(Refuse{gradient.key, Refuse::Reason::kSecondInRound});
  } else {
    staged_.push_back(gradient);
    CloseRoundIfComplete(decisions);
  }
  return Counted(std::move(decisions));
}

std::vector<Decision> SyncPolicy::OnEnd() {
  std::vector<Decision> decisions;
  if (core_.Finished()) return decisions;
  core_.final_version = core_.version;
  for (const Gradient& staged : staged_) {
    decisions.push_back(Refuse{staged.key, Refuse::Reason::kFinished});
  }
  staged_.clear();
  return Counted(std::move(decisions));
}

NextUpdate SyncPolicy::next_update() const {
  if (core_.Finished()) return {};
  std::vector<int> workers = core_.roster.LiveWorkers();
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!core_.roster.WasHeardOf(worker)) workers.push_back(worker);
  }
  std::sort(workers.begin(), workers.end());
  NextUpdate next;
  for (const int worker : workers) {
    (StagedOf(worker) == nullptr ? next.waiting_for : next.staged).push_back(worker);
  }
  return next;
}

bool SyncPolicy::Started() const {
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!core_.roster.WasHeardOf(worker)) return false;
  }
  return true;
}

int SyncPolicy::RoundSize() const {
  const int live = core_.roster.num_live();
  return config_.replicas_to_aggregate == 0 ? live : std::min(config_.replicas_to_aggregate, live);
}

const Gradient* SyncPolicy::StagedOf(int worker) const {
  const auto found = std::find_if(staged_.begin(), staged_.end(),
                                  [worker](const Gradient& staged) { return staged.key.worker == worker; });
  return found == staged_.end() ? nullptr : &*found;
}

void SyncPolicy::RefuseStaged(int worker, Refuse::Reason reason, std::vector<Decision>& decisions) {
  const Gradient* staged = StagedOf(worker);
  if (staged == nullptr) return;
  decisions.push_back(Refuse{staged->key, reason});
  staged_.erase(staged_.begin() + (staged - staged_.data()));
}

void SyncPolicy::CloseRoundIfComplete(std::vector<Decision>& decisions) {
  const size_t size = static_cast<size_t>(RoundSize());
  if (size == 0 || staged_.size() < size || !Started()) return;
  const auto first_late = staged_.begin() + static_cast<std::ptrdiff_t>(size);
  Apply apply;
  apply.version = ++core_.version;
  apply.contributors.assign(staged_.begin(), first_late);
  std::sort(apply.contributors.begin(), apply.contributors.end(),
            [](const Gradient& a, const Gradient& b) { return a.key.worker < b.key.worker; });
  decisions.push_back(std::move(apply));
  // More gradients than needed can be staged only before the first round.
  for (auto late = first_late; late != staged_.end(); ++late) {
    decisions.push_back(core_.Finished() ? Refuse{late->key, Refuse::Reason::kFinished}
                                         : Refuse{late->key, Refuse::Reason::kStale, /*staleness=*/1});
  }
  staged_.clear();
}

std::vector<Decision> SyncPolicy::Counted(std::vector<Decision> decisions) {
  for (const Decision& decision : decisions) core_.counters.Add(decision);
  return decisions;
}

google::protobuf::Any SyncPolicy::Save() const {
  v1::SyncPolicyState state;
  *state.mutable_core() = core_.Save();
  for (const Gradient& gradient : staged_) *state.add_staged() = ToProto(gradient);
  return Pack(state);
}

absl::Status SyncPolicy::Load(const google::protobuf::Any& state) {
  v1::SyncPolicyState saved;
  CAIRN_RETURN_IF_ERROR(Unpack(state, saved));
  std::vector<Gradient> staged;
  for (const v1::StagedGradient& proto : saved.staged()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(proto));
    CAIRN_RETURN_IF_ERROR(CheckWorker(gradient.key.worker, config_.most_workers));
    staged.push_back(gradient);
  }
  CAIRN_RETURN_IF_ERROR(core_.Load(saved.core(), config_.most_workers));
  staged_ = std::move(staged);
  return absl::OkStatus();
}

}  // namespace cairn::ps

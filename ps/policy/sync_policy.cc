#include "ps/policy/sync_policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cairn::ps {

std::vector<Decision> SyncPolicy::OnJoin(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  const Gradient* staged = StagedOf(worker);
  if (staged != nullptr && staged->key.incarnation != incarnation) {
    RefuseStaged(worker, Refuse::Reason::kOldIncarnation, decisions);
  }
  roster_.Join(worker, incarnation);
  CloseRoundIfComplete(decisions);  // the first round may have waited for this worker only
  return Counted(std::move(decisions));
}

std::vector<Decision> SyncPolicy::OnLeave(int worker, uint64_t incarnation) {
  std::vector<Decision> decisions;
  if (!roster_.Leave(worker, incarnation)) return decisions;
  RefuseStaged(worker, Refuse::Reason::kNotAMember, decisions);
  CloseRoundIfComplete(decisions);
  return Counted(std::move(decisions));
}

std::vector<Decision> SyncPolicy::OnGradient(const Gradient& gradient) {
  if (roster_.IsRepeat(gradient.key)) {
    ++counters_.duplicate;
    return {};
  }
  std::vector<Decision> decisions;
  if (std::optional<Refuse> refusal = roster_.Admit(gradient, Window())) {
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
  if (Window().Finished()) return decisions;
  final_version_ = version_;
  for (const Gradient& staged : staged_) {
    decisions.push_back(Refuse{staged.key, Refuse::Reason::kFinished});
  }
  staged_.clear();
  return Counted(std::move(decisions));
}

std::vector<int> SyncPolicy::WaitingFor() const {
  if (Window().Finished()) return {};
  std::vector<int> waiting;
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!roster_.WasHeardOf(worker)) waiting.push_back(worker);
  }
  for (int worker : roster_.LiveWorkers()) {
    if (StagedOf(worker) == nullptr) waiting.push_back(worker);
  }
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

bool SyncPolicy::Started() const {
  for (int worker = 0; worker < config_.expected_workers; ++worker) {
    if (!roster_.WasHeardOf(worker)) return false;
  }
  return true;
}

int SyncPolicy::RoundSize() const {
  const int live = roster_.num_live();
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
  apply.version = ++version_;
  apply.contributors.assign(staged_.begin(), first_late);
  std::sort(apply.contributors.begin(), apply.contributors.end(),
            [](const Gradient& a, const Gradient& b) { return a.key.worker < b.key.worker; });
  decisions.push_back(std::move(apply));
  // More gradients than needed can be staged only before the first round.
  for (auto late = first_late; late != staged_.end(); ++late) {
    decisions.push_back(Window().Finished() ? Refuse{late->key, Refuse::Reason::kFinished}
                                            : Refuse{late->key, Refuse::Reason::kStale, /*staleness=*/1});
  }
  staged_.clear();
}

std::vector<Decision> SyncPolicy::Counted(std::vector<Decision> decisions) {
  for (const Decision& decision : decisions) counters_.Add(decision);
  return decisions;
}

PolicyState SyncPolicy::Save() const {
  return {.version = version_,
          .final_version = final_version_,
          .roster = roster_.Save(),
          .staged = staged_,
          .counters = counters_};
}

void SyncPolicy::Restore(const PolicyState& state) {
  version_ = state.version;
  final_version_ = state.final_version;
  roster_.Restore(state.roster);
  staged_ = state.staged;
  counters_ = state.counters;
}

}  // namespace cairn::ps

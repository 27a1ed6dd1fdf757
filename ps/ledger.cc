#include "ps/ledger.h"

namespace cairn::ps {

Ledger::Verdict Ledger::Admit(const PushKey& key) const {
  const auto found = entries_.find(key.worker);
  if (found == entries_.end() || key.incarnation > found->second.incarnation) return {Admission::kNew, {}};
  const Entry& entry = found->second;
  if (key.incarnation < entry.incarnation) return {Admission::kOldIncarnation, {}};
  if (key.step <= entry.last.step) return {Admission::kDecided, entry.last};
  if (entry.staged_step.has_value() && key.step <= *entry.staged_step) return {Admission::kUnderWay, {}};
  return {Admission::kNew, {}};
}

void Ledger::Stage(const PushKey& key) {
  Entry& entry = entries_[key.worker];
  if (key.incarnation > entry.incarnation)
    entry = Entry{.incarnation = key.incarnation, .staged_step = {}, .last = {}};
  entry.staged_step = key.step;
}

void Ledger::Decide(const PushKey& key, v1::Outcome outcome, int64_t version, int64_t staleness) {
  Entry& entry = entries_[key.worker];
  if (key.incarnation < entry.incarnation) return;
  if (key.incarnation > entry.incarnation)
    entry = Entry{.incarnation = key.incarnation, .staged_step = {}, .last = {}};
  if (entry.staged_step == key.step) entry.staged_step.reset();
  if (key.step > entry.last.step) entry.last = {key.step, outcome, version, staleness};
}

}  // namespace cairn::ps

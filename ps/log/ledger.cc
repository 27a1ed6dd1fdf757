#include "ps/log/ledger.h"

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

void Ledger::Save(google::protobuf::RepeatedPtrField<v1::LedgerEntry>& entries) const {
  for (const auto& [worker, entry] : entries_) {
    v1::LedgerEntry& saved = *entries.Add();
    saved.set_worker(worker);
    saved.set_incarnation(entry.incarnation);
    saved.set_step(entry.last.step);
    saved.set_outcome(entry.last.outcome);
    saved.set_version(entry.last.version);
    saved.set_staleness(entry.last.staleness);
  }
}

void Ledger::Restore(const google::protobuf::RepeatedPtrField<v1::LedgerEntry>& entries) {
  entries_.clear();
  for (const v1::LedgerEntry& saved : entries) {
    entries_[saved.worker()] = {.incarnation = saved.incarnation(),
                                .staged_step = {},
                                .last = {.step = saved.step(),
                                         .outcome = saved.outcome(),
                                         .version = saved.version(),
                                         .staleness = saved.staleness()}};
  }
}

}  // namespace cairn::ps

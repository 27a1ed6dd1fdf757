#include "ps/shard/push_table.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {

EffectSink::Callback PushTable::Waiting::Answer(absl::StatusOr<PushResult> answer) {
  if (answer.ok() && work != nullptr) answer->work = work();
  return Answered<PushResult>(std::move(reply), std::move(answer));
}

bool PushTable::IsKnown(const PushKey& key) const {
  MutexLock lock(mutex_);
  return ledger_.Admit(key).admission != Ledger::Admission::kNew;
}

PushTable::Added PushTable::Add(CompletePush& push) {
  const PushKey& key = push.gradient.key;
  MutexLock lock(mutex_);
  if (!failure_.ok()) return {.answer = failure_};
  const Ledger::Verdict verdict = ledger_.Admit(key);
  if (verdict.admission == Ledger::Admission::kNew) {
    if (staged_.size() >= kMaxStaged) {
      return {
          .answer = absl::ResourceExhaustedError(absl::StrCat(
              Describe(key), ": ", staged_.size(), " pushes wait for their decision, at most ", kMaxStaged))};
    }
    ledger_.Stage(key);
    Staged& staged = staged_[key];
    staged.gradient = push.gradient;
    staged.data = std::move(push.data);
    staged.came = std::chrono::steady_clock::now();
    staged.waiting.push_back(std::move(push.waiting));
    return {.staged = true, .was_awaited = std::erase(missing_, key) > 0 && missing_.empty()};
  }
  if (const auto found = staged_.find(key);
      verdict.admission == Ledger::Admission::kUnderWay && found != staged_.end()) {
    ++duplicates_;
    if (found->second.waiting.size() > kMaxRepeats) {
      return {.answer = absl::ResourceExhaustedError(
                  absl::StrCat(Describe(key), ": ", kMaxRepeats, " repeats of it wait"))};
    }
    push.waiting.duplicate = true;
    push.waiting.speculative = false;
    found->second.waiting.push_back(std::move(push.waiting));
    return {};
  }
  return {.answer = AnswerKnown(key, verdict)};
}

PushResult PushTable::AnswerKnown(const PushKey& key, const Ledger::Verdict& verdict) {
  if (verdict.admission == Ledger::Admission::kDecided) {
    ++duplicates_;
    const bool same = verdict.ruling.step == key.step;
    return {.outcome = same ? verdict.ruling.outcome : v1::OUTCOME_REJECTED,
            .duplicate = true,
            .staleness = verdict.ruling.staleness,
            .version = verdict.ruling.version,
            .finished = final_version_.IsReached(verdict.ruling.version)};
  }
  // The push is from an earlier incarnation, or a later step has been staged.
  ++rejected_;
  return {.outcome = v1::OUTCOME_REJECTED, .version = store_.current().version};
}

std::vector<std::optional<PushTable::Contribution>> PushTable::Find(
    absl::Span<const Gradient> contributors) const {
  std::vector<std::optional<Contribution>> contributions;
  contributions.reserve(contributors.size());
  MutexLock lock(mutex_);
  for (const Gradient& gradient : contributors) {
    auto& contribution = contributions.emplace_back();
    if (const auto found = staged_.find(gradient.key); found != staged_.end()) {
      contribution = {.data = found->second.data, .came = found->second.came};
    }
  }
  return contributions;
}

std::optional<PushTable::Staged> PushTable::Take(const PushKey& key, const Ledger::Ruling& ruling) {
  MutexLock lock(mutex_);
  ledger_.Decide(key, ruling.outcome, ruling.version, ruling.staleness);
  auto node = staged_.extract(key);
  if (node.empty()) return std::nullopt;
  if (ruling.outcome == v1::OUTCOME_REJECTED || ruling.outcome == v1::OUTCOME_FINISHED) ++rejected_;
  return std::move(node.mapped());
}

void PushTable::Defer(const Gradient& gradient, int64_t staleness) {
  PushData released;  // outside the lock
  MutexLock lock(mutex_);
  Staged& staged = staged_[gradient.key];
  staged.gradient = gradient;
  staged.applied_staleness = staleness;
  released = std::exchange(staged.data, PushData());
  if (ledger_.Admit(gradient.key).admission == Ledger::Admission::kNew) ledger_.Stage(gradient.key);
}

std::optional<int64_t> PushTable::DeferredStaleness(const PushKey& key) const {
  MutexLock lock(mutex_);
  const auto found = staged_.find(key);
  return found == staged_.end() ? std::nullopt : found->second.applied_staleness;
}

std::vector<PushKey> PushTable::AwaitMissing(absl::Span<const Gradient> contributors) {
  MutexLock lock(mutex_);
  missing_.clear();
  for (const Gradient& gradient : contributors) {
    if (!staged_.contains(gradient.key)) missing_.push_back(gradient.key);
  }
  return missing_;
}

std::optional<std::vector<PushReply>> PushTable::Close(const absl::Status& failure) {
  std::map<PushKey, Staged> staged;  // released outside the lock
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return std::nullopt;
    failure_ = failure;
    staged.swap(staged_);
  }
  std::vector<PushReply> replies;
  for (auto& [key, push] : staged) {
    for (Waiting& waiting : push.waiting) replies.push_back(std::move(waiting.reply));
  }
  return replies;
}

absl::Status PushTable::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::vector<PushKey> PushTable::missing() const {
  MutexLock lock(mutex_);
  return missing_;
}

std::vector<Gradient> PushTable::StagedGradients() const {
  MutexLock lock(mutex_);
  std::vector<Gradient> gradients;
  for (const auto& [key, staged] : staged_) {
    if (!staged.applied_staleness.has_value()) gradients.push_back(staged.gradient);
  }
  return gradients;
}

int64_t PushTable::duplicates() const {
  MutexLock lock(mutex_);
  return duplicates_;
}

int64_t PushTable::rejected() const {
  MutexLock lock(mutex_);
  return rejected_;
}

PushTable::Load PushTable::load() const {
  MutexLock lock(mutex_);
  Load load;
  for (const auto& [key, staged] : staged_) {
    if (staged.applied_staleness.has_value()) continue;  // decided; only its answer waits
    ++load.staged;
    load.staged_since = std::min(load.staged_since.value_or(staged.came), staged.came);
  }
  return load;
}

void PushTable::Save(v1::ReplicatedShard& state) const {
  MutexLock lock(mutex_);
  ledger_.Save(*state.mutable_ledger());
  for (const auto& [key, staged] : staged_) {
    if (!staged.applied_staleness.has_value()) continue;
    v1::DeferredPush& deferred = *state.add_deferred();
    *deferred.mutable_gradient() = ToProto(staged.gradient);
    deferred.set_staleness(*staged.applied_staleness);
  }
  state.set_duplicates(duplicates_);
  state.set_rejected(rejected_);
}

void PushTable::Restore(const v1::ReplicatedShard& state,
                        absl::Span<const std::pair<Gradient, int64_t>> deferred) {
  MutexLock lock(mutex_);
  ledger_.Restore(state.ledger());
  for (const auto& [gradient, staleness] : deferred) {
    staged_[gradient.key].gradient = gradient;
    staged_[gradient.key].applied_staleness = staleness;
    ledger_.Stage(gradient.key);
  }
  duplicates_ = state.duplicates();
  rejected_ = state.rejected();
}

}  // namespace cairn::ps

#include "ps/table/speculative_update.h"

#include <algorithm>
#include <utility>

namespace cairn::ps {
SpeculativeUpdate::SpeculativeUpdate(optim::VariableStore& store, ThreadPool* thread_pool,
                                     TraceRecorder* trace)
    : store_(store),
      thread_pool_(thread_pool),
      trace_(trace),
      num_chunks_((store.size() + kChunk - 1) / kChunk) {}

SpeculativeUpdate::~SpeculativeUpdate() {
  Close();
}

SpeculativeUpdate::Member* SpeculativeUpdate::Find(const PushKey& key) {
  if (!round_.has_value()) return nullptr;
  for (Member& member : round_->members) {
    if (member.worker == key.worker && member.incarnation == key.incarnation) return &member;
  }
  return nullptr;
}

void SpeculativeUpdate::Notify(const Notifications& notifications) {
  for (const auto& [allow, bytes] : notifications) {
    if (allow != nullptr) allow(bytes);
  }
}

SpeculativeUpdate::Notifications SpeculativeUpdate::Advance(const Member& member, int64_t elements) {
  Notifications notifications;
  const auto index = static_cast<size_t>(&member - round_->members.data());
  for (const RoundFlowControl::Credit& credit : round_->flow_control.Advance(index, elements)) {
    notifications.emplace_back(round_->members[credit.member].allow,
                               static_cast<uint64_t>(credit.more) * sizeof(float));
  }
  return notifications;
}

SpeculativeUpdate::Notifications SpeculativeUpdate::Spoil() {
  Notifications notifications;
  if (std::exchange(round_->spoilt, true)) return notifications;
  for (size_t i = 0; i < round_->members.size(); ++i) {
    if (round_->flow_control.IsUnderWay(i)) notifications.emplace_back(round_->members[i].allow, kNoLimit);
  }
  return notifications;
}

bool SpeculativeUpdate::Begin(const Gradient& gradient, SendValues send, AllowBytes allow) {
  Notifications notifications;
  bool joins = false;
  {
    MutexLock lock(mutex_);
    Member* const member = Find(gradient.key);
    if (member != nullptr && !round_->spoilt) {
      joins = !member->gradient.has_value() && gradient.base_version == round_->base_version &&
              gradient.examples > 0;
      // No chunk is complete before this push, so none has been computed with other settings.
      if (joins && !gradient.groups.empty()) joins = store_.SetSpeculativeGroups(gradient.groups).ok();
      if (!joins) notifications = Spoil();
    }
    if (joins) {
      member->gradient = gradient;
      if (!gradient.groups.empty()) round_->groups = std::exchange(member->gradient->groups, {});
      member->send = std::move(send);
      member->allow = allow;
      member->missing.assign(static_cast<size_t>(num_chunks_), kChunk);
      member->missing.back() = store_.size() - (num_chunks_ - 1) * kChunk;
      const auto index = static_cast<size_t>(member - round_->members.data());
      const int64_t elements = round_->flow_control.Begin(index);
      // A credit for the whole gradient has no limit, so that the next push need not wait for credit.
      const bool all = elements == store_.size();
      notifications.emplace_back(std::move(allow),
                                 all ? kNoLimit : static_cast<uint64_t>(elements) * sizeof(float));
    } else {
      notifications.emplace_back(std::move(allow), kNoLimit);
    }
  }
  Notify(notifications);
  return joins;
}

void SpeculativeUpdate::Arrived(const PushKey& key, const GradientView& data, int64_t begin, int64_t end) {
  std::vector<int64_t> ready;
  Notifications notifications;
  {
    MutexLock lock(mutex_);
    Member* const member = Find(key);
    if (member == nullptr || round_->spoilt) return;
    if (!member->gradient.has_value() || member->gradient->key != key) return;
    member->data = data;
    notifications = Advance(*member, end - begin);
    for (int64_t chunk = begin / kChunk; chunk * kChunk < end; ++chunk) {
      int64_t& missing = member->missing[static_cast<size_t>(chunk)];
      missing -= std::min(end, (chunk + 1) * kChunk) - std::max(begin, chunk * kChunk);
      if (missing == 0 && --round_->waits_for[static_cast<size_t>(chunk)] == 0) ready.push_back(chunk);
    }
    if (!ready.empty()) ++making_;
  }
  Notify(notifications);
  if (ready.empty()) return;
  if (thread_pool_ != nullptr &&
      thread_pool_->TrySchedule([this, ready, worker = key.worker] { Make(ready, worker); }))
    return;
  Make(ready, key.worker);
}

void SpeculativeUpdate::Make(absl::Span<const int64_t> chunks, int worker) {
  std::vector<optim::ContributedGradient> gradients;
  std::vector<GradientView> data;  // keeps the data alive: a member's data may be replaced
  std::vector<const SendValues*> sends;
  std::shared_ptr<AlignedBuffer> mean;
  int64_t version = 0;
  bool last_update = false;
  {
    MutexLock lock(mutex_);  // the round's members do not change while making_ counts this call
    for (const Member& member : round_->members) {
      data.push_back(member.data);
      gradients.emplace_back(data.back().runs(), member.gradient->examples);
      sends.push_back(&member.send);
    }
    mean = round_->mean;
    version = round_->base_version + 1;
    last_update = round_->last_update;
  }
  std::vector<optim::ContributedGradient> update = gradients;
  if (mean != nullptr) update = {optim::ContributedGradient(mean->data(), 1)};
  bool well = true;
  for (size_t first = 0, after; first < chunks.size(); first = after) {
    for (after = first + 1; after < chunks.size() && chunks[after] == chunks[after - 1] + 1;) ++after;
    const int64_t begin = chunks[first] * kChunk;
    const int64_t end = std::min((chunks[after - 1] + 1) * kChunk, store_.size());
    const TraceSpan span(trace_, TraceLane::kReceive, "update",
                         {.index = worker, .bytes = (end - begin) * int64_t{sizeof(float)}});
    if (mean != nullptr) {
      WriteMean(gradients, begin, end, mean->data());
      means_.load()->OnMean(version, mean, begin, end);
    }
    const auto values = store_.ApplySpeculatively({.gradients = update, .last = last_update}, begin, end);
    well = values != nullptr;
    for (size_t i = 0; well && i < sends.size(); ++i)
      well = *sends[i] == nullptr || (*sends[i])(values, begin, end);
    if (!well) break;
  }
  Notifications notifications;
  {
    MutexLock lock(mutex_);
    if (well) {
      round_->made += chunks.size();
    } else {
      notifications = Spoil();
    }
    if (--making_ == 0) idle_.NotifyAll();
  }
  Notify(notifications);
}

void SpeculativeUpdate::Abandon(const PushKey& key) {
  Notifications notifications;
  {
    MutexLock lock(mutex_);
    const Member* const member = Find(key);
    if (member != nullptr && member->gradient.has_value() && member->gradient->key == key)
      notifications = Spoil();
  }
  Notify(notifications);
}

void SpeculativeUpdate::Expect(absl::Span<const Gradient> last, bool last_update) {
  Drop();
  store_.BeginSpeculative();
  Round round = {.base_version = store_.current().version,
                 .last_update = last_update,
                 .groups = store_.groups(),
                 .flow_control = RoundFlowControl(last.size(), store_.size())};
  if (const MeanSink* const means = means_; means != nullptr && means->WantsMeans()) {
    round.mean = store_.pool().Acquire();
  }
  for (const Gradient& gradient : last) {
    round.members.push_back({.worker = gradient.key.worker, .incarnation = gradient.key.incarnation});
  }
  round.waits_for.assign(static_cast<size_t>(num_chunks_), round.members.size());
  MutexLock lock(mutex_);
  round_ = std::move(round);
}

std::optional<SpeculativeUpdate::Round> SpeculativeUpdate::Close() {
  Notifications notifications;
  std::optional<Round> round;
  {
    MutexLock lock(mutex_);
    if (round_.has_value()) notifications = Spoil();  // no more chunks are started
    while (making_ > 0) idle_.Wait(mutex_);           // waits for the arithmetic of a few chunks
    round = std::exchange(round_, std::nullopt);
  }
  Notify(notifications);
  return round;
}

std::optional<SpeculativeUpdate::Taken> SpeculativeUpdate::Take(absl::Span<const Gradient> contributors,
                                                                absl::Span<const GradientView> data,
                                                                bool last_update) {
  const std::optional<Round> round = Close();
  if (!round.has_value()) return std::nullopt;
  bool guessed = round->made == static_cast<size_t>(num_chunks_) && round->last_update == last_update &&
                 round->groups == store_.groups() && round->members.size() == contributors.size();
  for (size_t i = 0; guessed && i < contributors.size(); ++i) {
    const Member& member = round->members[i];
    guessed = member.gradient == contributors[i] && member.data == data[i];
  }
  if (!guessed) {
    store_.DropSpeculative();
    return std::nullopt;
  }
  store_.PublishSpeculative();
  return Taken{.mean = round->mean};
}

void SpeculativeUpdate::Drop() {
  if (Close().has_value()) store_.DropSpeculative();
}

}  // namespace cairn::ps

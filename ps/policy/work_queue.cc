#include "ps/policy/work_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

int64_t WorkPosition::num_open() const {
  int64_t examples = 0;
  for (const Run& run : open) examples += run.count;
  return examples;
}

WorkQueue::WorkQueue(const Config& config, const WorkPosition& resumed)
    : config_(config), next_(resumed.next) {
  for (const WorkPosition::Run& run : resumed.open) {
    const int64_t end = run.begin + run.count;
    for (int64_t begin = run.begin; begin < end;) {
      const int64_t first = begin % config_.num_examples;
      const int64_t count = std::min({config_.batch_size, config_.num_examples - first, end - begin});
      returned_.insert({begin / config_.num_examples, first, count});
      begin += count;
    }
  }
}

std::optional<WorkItem> WorkQueue::First() const {
  if (!returned_.empty()) return *returned_.begin();
  const int64_t epoch = next_ / config_.num_examples, first = next_ % config_.num_examples;
  if (config_.epochs > 0 && epoch >= config_.epochs) return std::nullopt;
  return WorkItem{epoch, first, std::min(config_.batch_size, config_.num_examples - first)};
}

std::optional<WorkItem> WorkQueue::Take() {
  const std::optional<WorkItem> first = First();
  if (!returned_.empty()) {
    returned_.erase(returned_.begin());
  } else if (first.has_value()) {
    next_ += first->count;
  }
  return first;
}

void WorkQueue::PutBack(const WorkItem& work_item) {
  if (work_item.count > 0) returned_.insert(work_item);
}

void WorkQueue::PutBackAhead(Holder& holder) {
  for (const WorkItem& work_item : holder.ahead) PutBack(work_item);
  holder.ahead.clear();
}

std::optional<WorkItem> WorkQueue::TakeFromAhead() {
  Holder* best = nullptr;
  for (auto& [worker, holder] : holders_) {
    if (holder.ahead.empty()) continue;
    const bool better =
        best == nullptr || holder.ahead.size() > best->ahead.size() ||
        (holder.ahead.size() == best->ahead.size() && holder.ahead.back() < best->ahead.back());
    if (better) best = &holder;
  }
  if (best == nullptr) return std::nullopt;
  const WorkItem work_item = best->ahead.back();
  best->ahead.pop_back();
  return work_item;
}

bool WorkQueue::Give(int worker) {
  Holder& holder = holders_[worker];
  if (!holder.current.has_value() && !holder.ahead.empty()) {
    holder.current = holder.ahead.front();
    holder.ahead.pop_front();
  }
  if (!holder.current.has_value()) holder.current = Take();
  if (!holder.current.has_value()) holder.current = TakeFromAhead();
  while (static_cast<int>(holder.ahead.size()) < config_.items_ahead && First().has_value()) {
    holder.ahead.push_back(*Take());
  }
  return holder.current.has_value();
}

void WorkQueue::GiveRound(absl::Span<const int> workers) {
  for (auto& [worker, holder] : holders_) PutBackAhead(holder);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const auto epoch_of_first = [this] {
    const std::optional<WorkItem> first = First();
    return first.has_value() ? first->epoch : kNone;
  };
  int64_t epoch = epoch_of_first();
  for (const auto& [worker, holder] : holders_) {
    if (holder.current.has_value()) epoch = std::min(epoch, holder.current->epoch);
  }
  if (epoch == kNone) return;
  for (int worker : workers) {
    std::optional<WorkItem>& current = holders_[worker].current;
    if (current.has_value()) continue;
    current = epoch_of_first() == epoch ? *Take() : WorkItem{epoch, config_.num_examples, 0};
  }
  for (int round = 0; round < config_.items_ahead; ++round) {
    const int64_t next_epoch = epoch_of_first();
    for (int worker : workers) {
      if (next_epoch != kNone && epoch_of_first() == next_epoch) holders_[worker].ahead.push_back(*Take());
    }
  }
}

void WorkQueue::Done(int worker) {
  holders_[worker].current.reset();
}

void WorkQueue::Return(int worker) {
  const auto found = holders_.find(worker);
  if (found == holders_.end()) return;
  if (found->second.current.has_value()) PutBack(*found->second.current);
  PutBackAhead(found->second);
  holders_.erase(found);
}

std::vector<WorkItem> WorkQueue::WorkItemsOf(int worker) const {
  std::vector<WorkItem> work_items;
  const auto found = holders_.find(worker);
  if (found == holders_.end() || !found->second.current.has_value()) return work_items;
  work_items.push_back(*found->second.current);
  work_items.insert(work_items.end(), found->second.ahead.begin(), found->second.ahead.end());
  return work_items;
}

bool WorkQueue::exhausted() const {
  const auto has_work = [](const auto& entry) {
    const Holder& holder = entry.second;
    return (holder.current.has_value() && holder.current->count > 0) || !holder.ahead.empty();
  };
  return !First().has_value() && std::none_of(holders_.begin(), holders_.end(), has_work);
}

WorkPosition WorkQueue::position() const {
  std::set<WorkItem> open = returned_;
  for (const auto& [worker, holder] : holders_) {
    if (holder.current.has_value() && holder.current->count > 0) open.insert(*holder.current);
    open.insert(holder.ahead.begin(), holder.ahead.end());
  }
  WorkPosition position = {.next = next_, .open = {}};
  for (const WorkItem& work_item : open) position.open.push_back({BeginOf(work_item), work_item.count});
  // Assigned examples after the last done one count as never assigned.
  while (!position.open.empty() && position.open.back().begin + position.open.back().count == position.next) {
    position.next = position.open.back().begin;
    position.open.pop_back();
  }
  return position;
}

void WorkQueue::Save(v1::QueuedPolicyState& state) const {
  state.set_next(next_);
  for (const WorkItem& work_item : returned_) *state.add_returned() = ToProto(work_item);
  for (const auto& [worker, holder] : holders_) {
    v1::QueuedPolicyState::Holder& saved = *state.add_holders();
    saved.set_worker(worker);
    if (holder.current.has_value()) *saved.mutable_current() = ToProto(*holder.current);
    for (const WorkItem& ahead : holder.ahead) *saved.add_next() = ToProto(ahead);
  }
}

absl::Status WorkQueue::CheckItem(const v1::WorkItem& work_item) const {
  const int64_t num_examples = config_.num_examples;
  const bool fits = work_item.epoch() >= 0 && work_item.epoch() < kMaxCounted / num_examples &&
                    work_item.first() >= 0 && work_item.count() >= 0 && work_item.first() <= num_examples &&
                    work_item.count() <= num_examples - work_item.first();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a work item of ", work_item.count(), " examples from example ", work_item.first(),
                   " on does not fit in epoch ", work_item.epoch(), ", which has ", num_examples));
}

absl::Status WorkQueue::Load(const v1::QueuedPolicyState& state, int most_workers) {
  CAIRN_RETURN_IF_ERROR(CheckCount("next example", state.next()));
  std::set<WorkItem> returned;
  for (const v1::WorkItem& work_item : state.returned()) {
    CAIRN_RETURN_IF_ERROR(CheckItem(work_item));
    returned.insert(FromProto(work_item));
  }
  std::map<int, Holder> holders;
  for (const v1::QueuedPolicyState::Holder& saved : state.holders()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(saved.worker(), most_workers));
    CAIRN_RETURN_IF_ERROR(CheckItem(saved.current()));
    Holder& holder = holders[saved.worker()];
    if (saved.has_current()) holder.current = FromProto(saved.current());
    for (const v1::WorkItem& ahead : saved.next()) {
      CAIRN_RETURN_IF_ERROR(CheckItem(ahead));
      holder.ahead.push_back(FromProto(ahead));
    }
  }
  next_ = state.next();
  returned_ = std::move(returned);
  holders_ = std::move(holders);
  return absl::OkStatus();
}

}  // namespace cairn::ps

#include "ps/policy/tallied_policy.h"

#include <algorithm>

namespace cairn::ps {

TalliedPolicy::TalliedPolicy(std::unique_ptr<UpdatePolicy> policy, const WorkPosition& resumed)
    : policy_(std::move(policy)), next_(resumed.next), repeated_(0) {
  for (const WorkPosition::Run& run : resumed.open) gaps_[run.begin] = run.begin + run.count;
}

std::vector<Decision> TalliedPolicy::Counted(std::vector<Decision> decisions) {
  for (const Decision& decision : decisions) {
    if (const auto* apply = std::get_if<Apply>(&decision)) {
      for (const Gradient& gradient : apply->contributors) {
        Count(gradient.position, gradient.position + gradient.examples);
      }
    }
  }
  return decisions;
}

void TalliedPolicy::Count(int64_t begin, int64_t end) {
  if (begin > next_) gaps_[next_] = begin;
  int64_t fresh = std::max<int64_t>(0, end - std::max(begin, next_));
  next_ = std::max(next_, end);
  auto gap = gaps_.upper_bound(begin);
  if (gap != gaps_.begin()) --gap;
  while (gap != gaps_.end() && gap->first < end) {
    const auto [gap_begin, gap_end] = *gap;
    const int64_t from = std::max(begin, gap_begin), to = std::min(end, gap_end);
    if (from >= to) {
      ++gap;
      continue;
    }
    fresh += to - from;
    gap = gaps_.erase(gap);
    if (gap_begin < from) gaps_[gap_begin] = from;
    if (to < gap_end) gaps_[to] = gap_end;
  }
  repeated_ += end - begin - fresh;
}

std::optional<WorkPosition> TalliedPolicy::position() const {
  WorkPosition position = {.next = next_, .open = {}, .repeated = repeated_};
  for (const auto& [begin, end] : gaps_) position.open.push_back({begin, end - begin});
  return position;
}

PolicyState TalliedPolicy::Save() const {
  PolicyState state = policy_->Save();
  state.tally = position();
  return state;
}

void TalliedPolicy::Restore(const PolicyState& state) {
  policy_->Restore(state);
  if (!state.tally.has_value()) return;
  next_ = state.tally->next;
  gaps_.clear();
  for (const WorkPosition::Run& run : state.tally->open) gaps_[run.begin] = run.begin + run.count;
  repeated_ = state.tally->repeated;
}

}  // namespace cairn::ps

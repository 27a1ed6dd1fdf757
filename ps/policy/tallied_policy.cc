#include "ps/policy/tallied_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

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

google::protobuf::Any TalliedPolicy::Save() const {
  v1::TalliedPolicyState state;
  *state.mutable_policy() = policy_->Save();
  *state.mutable_tally() = ToProto(*position());
  return Pack(state);
}

absl::Status TalliedPolicy::Load(const google::protobuf::Any& state) {
  v1::TalliedPolicyState saved;
  CAIRN_RETURN_IF_ERROR(Unpack(state, saved));
  const v1::DataPosition& tally = saved.tally();
  CAIRN_RETURN_IF_ERROR(CheckCount("next example", tally.next()));
  CAIRN_RETURN_IF_ERROR(CheckCount("repeated examples", tally.repeated()));
  std::map<int64_t, int64_t> gaps;
  int64_t done = 0;
  for (const v1::DataPosition::Run& run : tally.open()) {
    if (run.begin() < done || run.count() < 1 || run.count() > tally.next() - run.begin()) {
      return absl::InvalidArgumentError(absl::StrCat(run.count(), " unfinished examples from ", run.begin(),
                                                     " on do not fit among the first ", tally.next()));
    }
    done = run.begin() + run.count();
    gaps[run.begin()] = done;
  }
  CAIRN_RETURN_IF_ERROR(policy_->Load(saved.policy()));
  next_ = tally.next();
  gaps_ = std::move(gaps);
  repeated_ = tally.repeated();
  return absl::OkStatus();
}

}  // namespace cairn::ps

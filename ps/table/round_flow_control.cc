#include "ps/table/round_flow_control.h"

#include <algorithm>

namespace cairn::ps {

RoundFlowControl::RoundFlowControl(size_t members, int64_t size)
    : size_(size),
      lead_(members == 1 ? size : std::max(net::kUpdateChunk, kOnTheWay / static_cast<int64_t>(members))),
      members_(members) {}

int64_t RoundFlowControl::Most() const {
  int64_t most = 0;
  for (const Member& member : members_) most = std::max(most, member.received.value_or(0));
  return most;
}

int64_t RoundFlowControl::Least() const {
  const int64_t most = Most();
  int64_t least = most;
  for (const Member& member : members_) {
    if (member.received.has_value() && *member.received + kStraggles >= most)
      least = std::min(least, *member.received);
  }
  return least;
}

int64_t RoundFlowControl::Begin(size_t member) {
  members_[member].received = 0;
  return members_[member].allowed = std::min(size_, Least() + lead_);
}

std::vector<RoundFlowControl::Credit> RoundFlowControl::Advance(size_t member, int64_t elements) {
  *members_[member].received += elements;
  const int64_t allowed = std::min(size_, Least() + lead_);
  std::vector<Credit> credits;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& other = members_[i];
    if (!other.received.has_value() || other.allowed >= allowed) continue;
    other.allowed = allowed;
    credits.push_back({i, std::max<int64_t>(0, allowed - *other.received)});
  }
  return credits;
}

}  // namespace cairn::ps

#include "ps/members/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::ps {

Membership::Availability Membership::CheckAvailability(int worker, uint64_t process, TimePoint now,
                                                       Duration silence) {
  const auto found = members_.find(worker);
  if (found == members_.end() || found->second.state != State::kLive) return Availability::kFree;
  Member& member = found->second;
  if (member.process.id() == process || member.stream_broke) return Availability::kFree;
  if (!member.contested_at.has_value()) {
    member.contested_at = now;
    member.heard_since = false;
    return Availability::kUnclear;
  }
  if (member.heard_since) {
    member.contested_at.reset();
    return Availability::kTaken;
  }
  return now - *member.contested_at >= silence ? Availability::kFree : Availability::kUnclear;
}

void Membership::StreamBroke(int worker, uint64_t incarnation) {
  const auto found = members_.find(worker);
  if (found == members_.end() || found->second.incarnation != incarnation) return;
  found->second.stream_broke = true;
}

uint64_t Membership::Join(int worker, uint64_t incarnation, TimePoint now, const v1::Process& process) {
  Member& member = members_[worker];
  if (incarnation == 0) incarnation = std::max(member.incarnation, incarnations_above_) + 1;
  if (incarnation < member.incarnation) return 0;
  member = {
      .incarnation = incarnation, .state = State::kLive, .last_heard = now, .step = 0, .process = process};
  return incarnation;
}

bool Membership::Heartbeat(int worker, uint64_t incarnation, int64_t step, TimePoint now) {
  const auto found = members_.find(worker);
  if (found == members_.end()) return false;
  Member& member = found->second;
  if (member.incarnation != incarnation || member.state != State::kLive) return false;
  // `now` may be older than a pause of this process, after which all members count as heard.
  member.last_heard = std::max(member.last_heard, now);
  member.step = step;
  member.heard_since = true;
  member.stream_broke = false;
  return true;
}

bool Membership::Leave(int worker, uint64_t incarnation) {
  const auto found = members_.find(worker);
  if (found == members_.end()) return false;
  Member& member = found->second;
  if (member.incarnation != incarnation || member.state != State::kLive) return false;
  member.state = State::kLeft;
  return true;
}

std::vector<Membership::Expired> Membership::ExpireOlderThan(TimePoint oldest) {
  std::vector<Expired> expired;
  for (auto& [worker, member] : members_) {
    if (member.state != State::kLive || member.last_heard >= oldest) continue;
    member.state = State::kExpired;
    expired.push_back({worker, member.incarnation});
  }
  return expired;
}

std::vector<Membership::Expired> Membership::ExpireAbsent() {
  std::vector<Expired> expired;
  for (int worker = 0; worker < static_cast<int>(tasks_.size()); ++worker) {
    if (members_.count(worker) != 0) continue;
    members_[worker].state = State::kExpired;
    expired.push_back({worker, 0});
  }
  return expired;
}

bool Membership::AllOthersLeft(int worker, std::string* missing) const {
  std::vector<std::string> others;
  for (int other = 0; other < static_cast<int>(tasks_.size()); ++other) {
    if (other == worker) continue;
    const auto member = members_.find(other);
    if (member == members_.end() && elastic_) {
      continue;
    } else if (member == members_.end()) {
      others.push_back(absl::StrCat(NameOf(other), " (never joined)"));
    } else if (member->second.state == State::kLive) {
      others.push_back(absl::StrCat(NameOf(other), " (step ", member->second.step, ")"));
    }
  }
  *missing = absl::StrJoin(others, ", ");
  return others.empty();
}

std::vector<Membership::Entry> Membership::All() const {
  std::vector<Entry> all;
  for (const auto& [worker, member] : members_) {
    all.push_back({worker, member.incarnation, member.state == State::kLive, member.step, NameOf(worker),
                   member.process});
  }
  return all;
}

void Membership::Put(const Entry& entry, TimePoint now) {
  if (elastic_) SetName(entry.worker, entry.task);
  members_[entry.worker] = {.incarnation = entry.incarnation,
                            .state = entry.live ? State::kLive : State::kLeft,
                            .last_heard = now,
                            .step = entry.step,
                            .process = entry.process};
}

void Membership::HearAll(TimePoint when) {
  for (auto& [worker, member] : members_) {
    member.last_heard = when;
    member.contested_at.reset();  // the member's heartbeats may have gone to another server
  }
}

std::string Membership::NameOf(int worker) const {
  return HasName(worker) ? tasks_[static_cast<size_t>(worker)] : absl::StrCat("an unknown worker ", worker);
}

bool Membership::HasName(int worker) const {
  return worker >= 0 && worker < static_cast<int>(tasks_.size()) &&
         !tasks_[static_cast<size_t>(worker)].empty();
}

int Membership::NumberOf(const std::string& task, int most) {
  const auto found = std::find(tasks_.begin(), tasks_.end(), task);
  const int number = static_cast<int>(found - tasks_.begin());
  if (number >= most) return -1;
  if (found == tasks_.end()) tasks_.push_back(task);
  return number;
}

void Membership::SetName(int worker, const std::string& task) {
  const size_t index = static_cast<size_t>(worker);
  if (tasks_.size() <= index) tasks_.resize(index + 1);
  tasks_[index] = task;
}

int Membership::TakenExcept(int worker) const {
  const auto live_other = [worker](const auto& entry) {
    return entry.first != worker && entry.first != 0 && entry.second.state == State::kLive;
  };
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), live_other)) +
         (worker != 0 ? 1 : 0);
}

}  // namespace cairn::ps

#include "tests/simulation/checker.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::simulation {
namespace {

constexpr size_t kMostViolations = 20;

std::string Name(const ps::PushKey& key) {
  return absl::StrCat("push ", key.worker, ".", key.incarnation, ".", key.step);
}

}  // namespace

Checker::Coverage& Checker::Coverage::operator+=(const Coverage& other) {
  updates += other.updates;
  accepted += other.accepted;
  stale += other.stale;
  rejected += other.rejected;
  finished += other.finished;
  duplicate += other.duplicate;
  return *this;
}

Checker::Checker(const Rules& rules) : rules_(rules), updates_(static_cast<size_t>(rules.servers)) {
  values_[0] = 0;
}

void Checker::Violation(std::string what) {
  if (violations_.size() < kMostViolations) violations_.push_back(std::move(what));
}

void Checker::Joined(int worker, uint64_t incarnation, int64_t clock) {
  heard_of_.insert(worker);
  uint64_t& life = live_[worker];
  if (incarnation <= life) Violation(absl::StrCat("worker ", worker, " joins with an old incarnation"));
  life = incarnation;
  clocks_[worker] = clock;
}

void Checker::Left(int worker) {
  heard_of_.insert(worker);
  live_.erase(worker);
}

std::optional<uint64_t> Checker::LiveIncarnation(int worker) const {
  const auto found = live_.find(worker);
  if (found == live_.end()) return std::nullopt;
  return found->second;
}

int64_t Checker::Arrived(int server, const ps::Gradient& gradient, float value) {
  Push& push = pushes_[gradient.key];
  if (push.gradient.key != gradient.key || server == 0) push.gradient = gradient;
  push.value = value;
  arrivals_.push_back({server, gradient.key});
  return static_cast<int64_t>(arrivals_.size()) - 1;
}

void Checker::Answered(int64_t index, const ps::PushResult& result, std::optional<float> value) {
  Arrival& arrival = arrivals_[static_cast<size_t>(index)];
  const std::string who = absl::StrCat(Name(arrival.key), " on ps/", arrival.server);
  if (arrival.answered) Violation(absl::StrCat(who, " is answered twice"));
  arrival.answered = true;
  Push& push = pushes_.at(arrival.key);
  if (value.has_value()) CheckValue(arrival.server, result.version, *value);

  const auto first = push.outcome.find(arrival.server);
  if (first != push.outcome.end()) {
    // Told once more. A shard that has seen a newer life or step of the worker may only say no.
    if (result.outcome != first->second && result.outcome != v1::OUTCOME_REJECTED) {
      Violation(absl::StrCat(who, " is told ", v1::Outcome_Name(result.outcome), " after ",
                             v1::Outcome_Name(first->second)));
    }
    ++coverage_.duplicate;
    return;
  }
  push.outcome[arrival.server] = result.outcome;
  switch (result.outcome) {
    case v1::OUTCOME_ACCEPTED:
      ++coverage_.accepted;
      CheckAccepted(arrival, push, result);
      break;
    case v1::OUTCOME_STALE:
      ++coverage_.stale;
      if (result.staleness <= std::max<int64_t>(0, sync() ? 0 : rules_.max_staleness)) {
        Violation(absl::StrCat(who, " is refused as stale by ", result.staleness));
      }
      if (rules_.mode == v1::MODE_SSP) Violation(absl::StrCat(who, " is refused as stale, not held"));
      break;
    case v1::OUTCOME_REJECTED:
      ++coverage_.rejected;
      if (arrival.server == 0 && LiveIncarnation(arrival.key.worker) == arrival.key.incarnation) {
        Violation(absl::StrCat(who, " is rejected, though its worker is a member"));
      }
      break;
    case v1::OUTCOME_FINISHED:
      ++coverage_.finished;
      if (rules_.final_version == 0 || result.version != rules_.final_version) {
        Violation(absl::StrCat(who, " is told of the end at version ", result.version));
      }
      break;
    default:
      Violation(absl::StrCat(who, " is answered without an outcome"));
  }
}

void Checker::CheckAccepted(const Arrival& arrival, const Push& push, const ps::PushResult& result) {
  const std::string who = absl::StrCat(Name(arrival.key), " on ps/", arrival.server);
  if (rules_.mode == v1::MODE_SSP) {
    if (arrival.server == 0 && LiveIncarnation(arrival.key.worker) == arrival.key.incarnation) {
      ++clocks_[arrival.key.worker];
      if (!result.finished) gone_on_.push_back(arrival.key);
    }
    return;  // the version is that of the answer, which may have been held
  }
  Update& update = updates_[static_cast<size_t>(arrival.server)][result.version];
  update.keys.insert(arrival.key);
  if (sync()) {
    if (push.gradient.base_version != result.version - 1) {
      Violation(absl::StrCat(who, " from version ", push.gradient.base_version, " is in the update to ",
                             result.version));
    }
  } else {
    if (update.keys.size() > 1) Violation(absl::StrCat(who, " shares its update with another"));
    if (rules_.max_staleness >= 0 && result.staleness > rules_.max_staleness) {
      Violation(absl::StrCat(who, " is accepted with staleness ", result.staleness));
    }
  }
}

// A worker goes on: nobody who lives is more clocks behind than allowed.
void Checker::CheckBound(const ps::PushKey& key) {
  if (LiveIncarnation(key.worker) != key.incarnation) return;  // told as it goes
  const int64_t clock = clocks_[key.worker];
  for (int other = 0; other < rules_.workers; ++other) {
    const bool counts = live_.count(other) > 0 || heard_of_.count(other) == 0;
    const int64_t theirs = heard_of_.count(other) == 0 ? 0 : clocks_[other];
    if (counts && theirs < clock - rules_.max_staleness) {
      Violation(absl::StrCat(Name(key), ": its worker goes on at clock ", clock, ", and worker ", other,
                             " is at ", theirs));
    }
  }
}

void Checker::CheckValue(int server, int64_t version, float value) {
  if (!one_log()) return;
  const auto [known, first] = values_.emplace(version, value);
  if (!first && known->second != value) {
    Violation(
        absl::StrCat("version ", version, " is ", value, " on ps/", server, " and was ", known->second));
  }
}

void Checker::Read(int server, int64_t version, float value) {
  CheckValue(server, version, value);
}

void Checker::EventEnded(int64_t version) {
  if (version < version_) Violation(absl::StrCat("ps/0 goes from version ", version_, " to ", version));
  if (sync() && version > version_ + 1) {
    Violation(absl::StrCat("ps/0 jumps from version ", version_, " to ", version));
  }
  if (sync() && version == version_ + 1) CheckRound(version);
  for (const ps::PushKey& key : gone_on_) CheckBound(key);
  gone_on_.clear();
  version_ = version;
  live_before_ = live_;
}

// An event has closed a round, of those who lived before it and after it, or of some who left by it.
void Checker::CheckRound(int64_t version) {
  ++coverage_.updates;
  const std::set<ps::PushKey>& keys = updates_[0][version].keys;
  std::set<int> contributors;
  double sum = 0, examples = 0;
  for (const ps::PushKey& key : keys) {
    if (!contributors.insert(key.worker).second) {
      Violation(absl::StrCat("worker ", key.worker, " is twice in round ", version));
    }
    const auto before = live_before_.find(key.worker);
    const bool lived = (before != live_before_.end() && before->second == key.incarnation) ||
                       LiveIncarnation(key.worker) == key.incarnation;
    if (!lived && rules_.rate_one)
      Violation(absl::StrCat(Name(key), " is in round ", version, " after its worker's death"));
    const Push& push = pushes_.at(key);
    sum += static_cast<double>(push.gradient.examples) * push.value;
    examples += static_cast<double>(push.gradient.examples);
  }
  if (static_cast<int>(heard_of_.size()) < rules_.workers) {
    Violation(absl::StrCat("round ", version, " closes before all workers have been heard of"));
  }
  if (contributors.empty()) Violation(absl::StrCat("round ", version, " has no gradient"));
  if (!rules_.rate_one) return;
  size_t stayed = 0;
  for (const auto& [worker, life] : live_) {
    const auto before = live_before_.find(worker);
    if (before == live_before_.end() || before->second != life) continue;
    ++stayed;
    if (rules_.replicas_to_aggregate == 0 && contributors.count(worker) == 0) {
      Violation(absl::StrCat("round ", version, " closes without worker ", worker, ", who lives"));
    }
  }
  if (rules_.replicas_to_aggregate > 0) {
    const auto wanted = static_cast<size_t>(rules_.replicas_to_aggregate);
    const size_t least = std::min(wanted, stayed);
    const size_t most = std::min(wanted, std::max(live_.size(), live_before_.size()));
    if (contributors.size() < least || contributors.size() > most) {
      Violation(absl::StrCat("round ", version, " has ", contributors.size(), " gradients"));
    }
  }
  if (values_.count(version) == 0 || values_.count(version - 1) == 0) return;
  const float expected = values_[version - 1] - static_cast<float>(examples > 0 ? sum / examples : 0);
  // The mean and the value are rounded once each.
  if (std::abs(values_[version] - expected) > 1e-5f * (1 + std::abs(expected))) {
    Violation(absl::StrCat("version ", version, " is ", values_[version], ", the mean makes it ", expected));
  }
}

void Checker::Ended(const Final& final) {
  if (!violations_.empty()) return;  // what follows from them says nothing new
  for (const Arrival& arrival : arrivals_) {
    if (!arrival.answered) {
      Violation(absl::StrCat(Name(arrival.key), " on ps/", arrival.server, " is never answered"));
    }
  }
  std::map<ps::PushKey, std::map<int, bool>> accepted;
  for (const auto& [key, push] : pushes_) {
    for (const auto& [server, outcome] : push.outcome) {
      accepted[key][server] = outcome == v1::OUTCOME_ACCEPTED;
    }
  }
  for (auto& [key, on] : accepted) {
    const bool anywhere = std::any_of(on.begin(), on.end(), [](const auto& there) { return there.second; });
    for (int server = 0; one_log() && anywhere && server < rules_.servers; ++server) {
      if (!on[server]) Violation(absl::StrCat(Name(key), " counts on one server, and not on ps/", server));
    }
  }
  for (int server = 0; server < rules_.servers; ++server) {
    const auto s = static_cast<size_t>(server);
    float sum = 0;
    int64_t count = 0;
    for (const auto& [key, push] : pushes_) {
      const auto there = accepted[key].find(server);
      if (there == accepted[key].end() || !there->second) continue;
      ++count;
      if (push.gradient.examples > 0) sum -= push.value;
    }
    if (!sync()) {
      coverage_.updates += server == 0 ? count : 0;
      if (count != final.versions[s]) {
        Violation(absl::StrCat("ps/", server, " ends at version ", final.versions[s], " after ", count,
                               " accepted pushes"));
      }
      if (rules_.rate_one && sum != final.values[s]) {
        Violation(absl::StrCat("ps/", server, " ends with ", final.values[s], ", the accepted make ", sum));
      }
    }
    if (one_log() && final.versions[s] != final.versions[0]) {
      Violation(absl::StrCat("ps/", server, " ends at version ", final.versions[s], ", ps/0 at ",
                             final.versions[0]));
    }
    if (one_log() && final.values[s] != final.values[0]) {
      Violation(absl::StrCat("ps/", server, " ends with ", final.values[s], ", ps/0 with ", final.values[0]));
    }
    if (rules_.mode == v1::MODE_SSP) continue;
    int64_t version = 0;
    for (const auto& [at, update] : updates_[s]) {
      if (at != ++version) Violation(absl::StrCat("ps/", server, " has no update to version ", version));
      if (one_log() && updates_[0][at].keys != update.keys) {
        Violation(absl::StrCat("ps/", server, " has other gradients in version ", at, " than ps/0"));
      }
    }
    if (version != final.versions[s]) Violation(absl::StrCat("ps/", server, " has updates of no gradient"));
  }

  int64_t sent = 0;
  for (const Arrival& arrival : arrivals_) sent += arrival.server == 0 ? 1 : 0;
  const v1::Counters& counters = final.counters;
  const int64_t counted = counters.accepted() + counters.stale() + counters.duplicate() + counters.rejected();
  if (counted != sent) {
    Violation(absl::StrCat(sent, " pushes came to ps/0, and it counts ", counted, ": ", counters.accepted(),
                           " accepted, ", counters.stale(), " stale, ", counters.duplicate(), " duplicate, ",
                           counters.rejected(), " rejected"));
  }
}

}  // namespace cairn::simulation

#include "tests/simulation/checker.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::simulation {
namespace {

constexpr size_t kMaxViolations = 20;

}  // namespace

std::string Name(const ps::PushKey& key) {
  return absl::StrCat("push ", key.worker, ".", key.incarnation, ".", key.step);
}

Checker::Coverage& Checker::Coverage::operator+=(const Coverage& other) {
  updates += other.updates;
  accepted += other.accepted;
  stale += other.stale;
  rejected += other.rejected;
  finished += other.finished;
  duplicate += other.duplicate;
  examples += other.examples;
  snapshots += other.snapshots;
  rolled_back += other.rolled_back;
  return *this;
}

Checker::Checker(const Rules& rules, Start start)
    : rules_(rules),
      start_(std::move(start)),
      updates_(static_cast<size_t>(rules.servers)),
      version_(start_.progress.version()),
      used_(start_.progress.data()) {
  values_[version_] = start_.values.empty() ? 0 : start_.values[0];
  snapshots_[version_] = start_.values;
  if (!rules_.rows) return;
  for (int server = 0; server < rules_.servers; ++server) {
    row_snapshots_[version_].push_back(StartRows(server));
  }
  rows_[version_] = StartRows(0);
}

void Checker::Violation(std::string what) {
  if (violations_.size() < kMaxViolations) violations_.push_back(std::move(what));
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

void Checker::Lost(int64_t index) {
  Arrival& arrival = arrivals_[static_cast<size_t>(index)];
  if (arrival.answered) {
    Violation(absl::StrCat(Name(arrival.key), " on ps/", arrival.server, " is answered twice"));
  }
  arrival.answered = arrival.lost = true;
  lost_.insert({arrival.key, arrival.server});
}

void Checker::ComputedIn(const ps::PushKey& key, int64_t history, int64_t here) {
  if (history == here) return;
  Violation(absl::StrCat(Name(key), " was computed in generation ", history, ", and is taken in ", here));
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
    // The push is answered again. A shard that has seen a newer incarnation or step of the worker may only
    // reject it.
    if (result.outcome != first->second && result.outcome != v1::OUTCOME_REJECTED) {
      Violation(absl::StrCat(who, " receives ", v1::Outcome_Name(result.outcome), " after ",
                             v1::Outcome_Name(first->second)));
    }
    ++coverage_.duplicate;
    return;
  }
  push.outcome[arrival.server] = result.outcome;
  push.version[arrival.server] = result.version;
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
      if (rules_.mode == v1::MODE_SSP) Violation(absl::StrCat(who, " is refused as stale, not deferred"));
      break;
    case v1::OUTCOME_REJECTED:
      ++coverage_.rejected;
      if (arrival.server == 0 && LiveIncarnation(arrival.key.worker) == arrival.key.incarnation) {
        Violation(absl::StrCat(who, " is rejected, though its worker is a member"));
      }
      break;
    case v1::OUTCOME_FINISHED:
      ++coverage_.finished;
      if ((rules_.final_version == 0 || result.version != rules_.final_version) && !all_examples_used()) {
        Violation(absl::StrCat(who, " is answered with the end at version ", result.version));
      }
      break;
    default:
      Violation(absl::StrCat(who, " is answered without an outcome"));
  }
}

void Checker::CheckAccepted(const Arrival& arrival, const Push& push, const ps::PushResult& result) {
  const std::string who = absl::StrCat(Name(arrival.key), " on ps/", arrival.server);
  if (arrival.server == 0) CheckExamples(push);
  if (rules_.mode == v1::MODE_SSP) {
    if (arrival.server == 0 && LiveIncarnation(arrival.key.worker) == arrival.key.incarnation) {
      ++clocks_[arrival.key.worker];
      if (!result.finished) gone_on_.push_back(arrival.key);
    }
    return;  // the version is that of the answer, which may have been deferred
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

void Checker::CheckExamples(const Push& push) {
  if (rules_.num_examples == 0) return;
  const int64_t begin = push.gradient.position, end = begin + push.gradient.examples;
  coverage_.examples += push.gradient.examples;
  if (!used_.Add(begin, end)) {
    Violation(absl::StrCat(Name(push.gradient.key), " is accepted with examples ", begin, " to ", end,
                           ", some of which are in an update before"));
  }
}

bool Checker::all_examples_used() const {
  return rules_.num_examples > 0 && rules_.epochs > 0 && used_.Holds(0, rules_.epochs * rules_.num_examples);
}

// When a worker continues, no live worker may be further behind than the bound.
void Checker::CheckBound(const ps::PushKey& key) {
  if (LiveIncarnation(key.worker) != key.incarnation) return;  // answered while it leaves
  const int64_t clock = clocks_[key.worker];
  const int64_t untold = rules_.copies ? 1 : 0;  // an answer that was lost with a server
  const auto& positions = start_.progress.positions();
  for (int other = 0; other < (rules_.elastic ? 1 : rules_.workers); ++other) {
    const bool heard_of = heard_of_.count(other) > 0;
    const bool awaited = !heard_of && !rules_.copies;  // those that do not come back leave unseen
    const bool counts = live_.count(other) > 0 || awaited;
    const int64_t before = other < positions.size() ? positions[other] : 0;
    const int64_t theirs = (heard_of ? clocks_[other] : before) + untold;
    if (counts && theirs < clock - rules_.max_staleness) {
      Violation(absl::StrCat(Name(key), ": its worker continues at clock ", clock, ", and worker ", other,
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

void Checker::EventEnded(std::optional<int64_t> version) {
  if (version.has_value()) {
    if (*version < version_) Violation(absl::StrCat("ps/0 goes from version ", version_, " to ", *version));
    if (sync() && *version > version_ + 1) {
      Violation(absl::StrCat("ps/0 jumps from version ", version_, " to ", *version));
    }
    if (sync() && *version == version_ + 1) CheckRound(*version);
    version_ = *version;
  }
  for (const ps::PushKey& key : gone_on_) CheckBound(key);
  gone_on_.clear();
  live_before_ = live_;
}

// An event has closed a round. Its contributors lived before and after the event, or some left by it.
void Checker::CheckRound(int64_t version) {
  ++coverage_.updates;
  const std::set<ps::PushKey>& keys = updates_[0][version].keys;
  std::set<int> contributors;
  for (const ps::PushKey& key : keys) {
    if (!contributors.insert(key.worker).second) {
      Violation(absl::StrCat("worker ", key.worker, " is twice in round ", version));
    }
    const auto before = live_before_.find(key.worker);
    const bool lived = (before != live_before_.end() && before->second == key.incarnation) ||
                       LiveIncarnation(key.worker) == key.incarnation;
    if (!lived && rules_.rate_one)
      Violation(absl::StrCat(Name(key), " is in round ", version, " after its worker's death"));
  }
  const int expected = rules_.elastic ? 1 : rules_.workers;
  if (heard_of_.empty() || *heard_of_.begin() != 0 || static_cast<int>(heard_of_.size()) < expected) {
    Violation(absl::StrCat("round ", version, " closes before all workers have been heard of"));
  }
  if (contributors.empty()) Violation(absl::StrCat("round ", version, " has no gradient"));
  CheckMean(version);
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
}

void Checker::CheckMean(int64_t version) {
  if (rules_.layerwise || values_.count(version) == 0 || values_.count(version - 1) == 0) return;
  double sum = 0, examples = 0;
  for (const ps::PushKey& key : updates_[0][version].keys) {
    const Push& push = pushes_.at(key);
    sum += static_cast<double>(push.gradient.examples) * push.value;
    examples += static_cast<double>(push.gradient.examples);
  }
  double mean = examples > 0 ? sum / examples : 0;
  // Each server has one element, with the same value on all servers.
  const double norm = std::abs(mean) * std::sqrt(rules_.servers);
  if (!rules_.rate_one && norm > rules_.clipnorm) mean *= rules_.clipnorm / norm;
  const float expected = values_[version - 1] - static_cast<float>(mean);
  // The mean and the value are rounded once each.
  if (std::abs(values_[version] - expected) > 1e-5f * (1 + std::abs(expected))) {
    Violation(absl::StrCat("version ", version, " is ", values_[version], ", the mean makes it ", expected));
  }
}

}  // namespace cairn::simulation

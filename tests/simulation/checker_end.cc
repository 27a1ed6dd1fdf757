// The checks of a whole history: of its snapshots, and at its end.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/table_rows.h"

namespace cairn::simulation {

void Checker::Snapshot(const v1::Progress& progress, const std::vector<float>& values,
                       const std::vector<std::vector<float>>& rows) {
  ++coverage_.snapshots;
  const int64_t version = progress.version();
  for (int server = 0; server < rules_.servers; ++server) {
    CheckValue(server, version, values[static_cast<size_t>(server)]);
  }
  int64_t accepted = start_.progress.counters().accepted();
  ExampleSet used(start_.progress.data());
  for (const auto& [key, push] : pushes_) {
    const auto outcome = push.outcome.find(0);
    if (outcome == push.outcome.end() || outcome->second != v1::OUTCOME_ACCEPTED) continue;
    if (push.version.at(0) > version) continue;
    ++accepted;
    used.Add(push.gradient.position, push.gradient.position + push.gradient.examples);
  }
  // An answer that was deferred, or lost with a server, has a later version than its update.
  const bool all_told = rules_.mode != v1::MODE_SSP && !rules_.copies;
  const int64_t counted = progress.counters().accepted();
  if (all_told ? counted != accepted : counted < accepted) {
    Violation(absl::StrCat("the snapshot of version ", version, " counts ", counted, " accepted, and ",
                           accepted, " were"));
  }
  if (rules_.num_examples > 0) {
    const ExampleSet behind(progress.data());
    ExampleSet both = behind;
    for (const auto& [key, push] : pushes_) {
      const auto outcome = push.outcome.find(0);
      if (outcome == push.outcome.end() || outcome->second != v1::OUTCOME_ACCEPTED) continue;
      const int64_t begin = push.gradient.position, end = begin + push.gradient.examples;
      if (push.version.at(0) <= version && !behind.Holds(begin, end)) {
        Violation(absl::StrCat("the snapshot of version ", version, " lacks examples ", begin, " to ", end,
                               " of ", Name(key)));
      }
    }
    if (all_told && behind.size() != used.size()) {
      Violation(absl::StrCat("the snapshot of version ", version, " has ", behind.size(),
                             " examples behind it, and ", used.size(), " were used"));
    }
  }
  snapshots_[version] = values;
  for (size_t server = 0; server < rows.size(); ++server) {
    ReadRows(static_cast<int>(server), version, rows[server]);
  }
  if (rules_.rows) row_snapshots_[version] = rows;
}

void Checker::RollBack(const Start& to) {
  ++coverage_.rolled_back;
  const int64_t version = to.progress.version();
  if (!server_lost_ && !arrivals_.empty()) {
    Violation(absl::StrCat("all are rolled back to version ", version, ", and no server has lost anything"));
  }
  const auto known = snapshots_.find(version);
  if (known == snapshots_.end()) {
    Violation(absl::StrCat("all are rolled back to version ", version, ", of which there is no snapshot"));
  } else if (known->second != to.values) {
    Violation(
        absl::StrCat("all are rolled back to other values than the snapshot of version ", version, " has"));
  }
  for (int server = 0; rules_.rows && server < rules_.servers; ++server) {
    const auto s = static_cast<size_t>(server);
    const std::vector<float> rows =
        to.tables.empty() ? std::vector<float>(kNumRows) : RowsIn(to.tables[s], server, rules_.servers);
    const auto of_snapshot = row_snapshots_.find(version);
    if (of_snapshot != row_snapshots_.end() && of_snapshot->second[s] != rows) {
      Violation(absl::StrCat("ps/", server, " is rolled back to other rows than the snapshot of version ",
                             version, " has"));
    }
  }
}

std::optional<bool> Checker::AcceptedOn(const Push& push, int server) const {
  const auto told = push.outcome.find(server);
  if (told != push.outcome.end()) return told->second == v1::OUTCOME_ACCEPTED;
  if (lost_.count({push.gradient.key, server}) > 0) return std::nullopt;
  return false;
}

void Checker::Ended(const Final& final) {
  if (!violations_.empty()) return;  // what follows from them says nothing new
  CheckAllAnswered();
  CheckSameOnAll(final);
  for (int server = 0; server < rules_.servers; ++server) CheckServer(server, final);
  CheckCounters(final.counters);
  if (rules_.rows) CheckFinalRows(final);
}

void Checker::CheckAllAnswered() {
  for (const Arrival& arrival : arrivals_) {
    if (!arrival.answered) {
      Violation(absl::StrCat(Name(arrival.key), " on ps/", arrival.server, " is never answered"));
    }
  }
}

void Checker::CheckSameOnAll(const Final& final) {
  if (!one_log()) return;
  for (const auto& [key, push] : pushes_) {
    bool anywhere = false;
    for (int server = 0; server < rules_.servers; ++server)
      anywhere |= AcceptedOn(push, server).value_or(false);
    for (int server = 0; anywhere && server < rules_.servers; ++server) {
      if (!AcceptedOn(push, server).value_or(true)) {
        Violation(absl::StrCat(Name(key), " counts on one server, and not on ps/", server));
      }
    }
  }
  for (size_t s = 0; s < final.versions.size(); ++s) {
    if (final.versions[s] != final.versions[0]) {
      Violation(
          absl::StrCat("ps/", s, " ends at version ", final.versions[s], ", ps/0 at ", final.versions[0]));
    }
    if (final.values[s] != final.values[0]) {
      Violation(absl::StrCat("ps/", s, " ends with ", final.values[s], ", ps/0 with ", final.values[0]));
    }
  }
}

void Checker::CheckServer(int server, const Final& final) {
  const auto s = static_cast<size_t>(server);
  float value = start_.values.empty() ? 0 : start_.values[s];
  int64_t version = start_.progress.version();
  bool all_known = true;
  for (const auto& [key, push] : pushes_) {
    const std::optional<bool> accepted = AcceptedOn(push, server);
    all_known &= accepted.has_value();
    if (!accepted.value_or(false)) continue;
    if (!sync()) ++version;
    if (push.gradient.examples > 0) value -= push.value;
  }
  if (!sync()) coverage_.updates += server == 0 ? version - start_.progress.version() : 0;
  if (!all_known) return;
  if (!sync()) {
    if (version != final.versions[s]) {
      Violation(absl::StrCat("ps/", server, " ends at version ", final.versions[s],
                             ", and accepted pushes make ", version));
    }
    if (rules_.rate_one && value != final.values[s]) {
      Violation(absl::StrCat("ps/", server, " ends with ", final.values[s], ", the accepted make ", value));
    }
  }
  if (rules_.mode == v1::MODE_SSP) return;
  version = start_.progress.version();
  for (const auto& [at, update] : updates_[s]) {
    if (at != ++version) Violation(absl::StrCat("ps/", server, " has no update to version ", version));
    if (one_log() && lost_.empty() && updates_[0][at].keys != update.keys) {
      Violation(absl::StrCat("ps/", server, " has other gradients in version ", at, " than ps/0"));
    }
    if (one_log() && (rules_.copies || !sync()) && server == 0) CheckMean(at);
  }
  if (version != final.versions[s]) Violation(absl::StrCat("ps/", server, " has updates of no gradient"));
}

void Checker::CheckCounters(const v1::Counters& counters) {
  const v1::Counters& before = start_.progress.counters();
  int64_t sent = 0, accepted = before.accepted();
  bool all_known = true;
  for (const Arrival& arrival : arrivals_) sent += arrival.server == 0 ? 1 : 0;
  for (const auto& [key, push] : pushes_) {
    const std::optional<bool> counts = AcceptedOn(push, 0);
    all_known &= counts.has_value();
    if (counts.value_or(false)) ++accepted;
  }
  if (all_known && counters.accepted() != accepted) {
    Violation(absl::StrCat(accepted, " pushes are accepted, and ps/0 counts ", counters.accepted()));
  }
  if (rules_.copies) return;  // the others are counted where they are answered
  sent += before.accepted() + before.stale() + before.duplicate() + before.rejected();
  const int64_t counted = counters.accepted() + counters.stale() + counters.duplicate() + counters.rejected();
  if (counted != sent) {
    Violation(absl::StrCat(sent, " pushes came to ps/0, and it counts ", counted, ": ", counters.accepted(),
                           " accepted, ", counters.stale(), " stale, ", counters.duplicate(), " duplicate, ",
                           counters.rejected(), " rejected"));
  }
  if (all_known && rules_.num_examples > 0) {
    const int64_t used = counters.examples();
    if (used != used_.size()) {
      Violation(absl::StrCat(used_.size(), " examples are used, and ps/0 counts ", used));
    }
  }
}

}  // namespace cairn::simulation

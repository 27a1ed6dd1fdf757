// The checks of the rows of a job's table.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/table_rows.h"

namespace cairn::simulation {

std::vector<float> Checker::StartRows(int server) const {
  if (start_.tables.empty()) return std::vector<float>(kNumRows);
  return RowsIn(start_.tables[static_cast<size_t>(server)], server, rules_.servers);
}

void Checker::ReadRows(int server, int64_t version, const std::vector<float>& rows) {
  if (!one_log()) return;
  const auto [known, first] = rows_.emplace(version, rows);
  if (!first && known->second != rows) {
    Violation(absl::StrCat("the rows of version ", version, " are ", absl::StrJoin(rows, ", "), " on ps/",
                           server, " and were ", absl::StrJoin(known->second, ", ")));
  }
}

void Checker::CheckRowsOf(int64_t version) {
  const auto before = rows_.find(version - 1), after = rows_.find(version);
  if (before == rows_.end() || after == rows_.end()) return;
  double examples = 0;
  std::vector<double> sums(kNumRows);
  for (const ps::PushKey& key : updates_[0][version].keys) {
    const Push& push = pushes_.at(key);
    const double sum = static_cast<double>(push.gradient.examples) * push.value;
    examples += static_cast<double>(push.gradient.examples);
    sums[0] += sum;
    sums[RowOf(key)] += sum;
  }
  for (size_t row = 0; row < kNumRows; ++row) {
    const float expected = before->second[row] - static_cast<float>(examples > 0 ? sums[row] / examples : 0);
    if (std::abs(after->second[row] - expected) > 1e-5f * (1 + std::abs(expected))) {
      Violation(absl::StrCat("row ", row, " of version ", version, " is ", after->second[row],
                             ", the mean makes it ", expected));
    }
  }
}

void Checker::CheckFinalRows(const Final& final) {
  bool all_known = true;
  for (int server = 0; server < rules_.servers; ++server) {
    const auto s = static_cast<size_t>(server);
    if (one_log()) ReadRows(server, final.versions[s], final.rows[s]);
    if (rules_.rate_one && final.rows[s][0] != final.values[s]) {
      Violation(absl::StrCat("row 0 of ps/", server, " ends with ", final.rows[s][0], ", the variable with ",
                             final.values[s]));
    }
    std::vector<float> rows = StartRows(server);
    for (const auto& [key, push] : pushes_) {
      const std::optional<bool> accepted = AcceptedOn(push, server);
      all_known &= accepted.has_value();
      if (!accepted.value_or(false) || push.gradient.examples == 0) continue;
      rows[0] -= push.value;
      rows[RowOf(key)] -= push.value;
    }
    if (all_known && !sync() && rows != final.rows[s]) {
      Violation(absl::StrCat("ps/", server, " ends with the rows ", absl::StrJoin(final.rows[s], ", "),
                             ", the accepted make ", absl::StrJoin(rows, ", ")));
    }
  }
  if (!all_known || !sync()) return;
  for (const auto& [version, update] : updates_[0]) CheckRowsOf(version);
}

}  // namespace cairn::simulation

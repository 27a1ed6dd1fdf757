#include "common/monitor/inspection.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/flags/words.h"
#include "common/monitor/status_page.h"

namespace cairn::monitor {
namespace {

std::string Without(const std::string& prefix, const std::string& name) {
  return name.size() > prefix.size() ? absl::AsciiStrToLower(name.substr(prefix.size())) : "unknown";
}

// Shorter waits are not mentioned.
constexpr double kNoticeableSeconds = 1;

}  // namespace

std::string NameOf(v1::State state) {
  return Without("STATE_", v1::State_Name(state));
}

std::string NameOf(v1::MemberState state) {
  return Without("MEMBER_STATE_", v1::MemberState_Name(state));
}

std::string NameOf(v1::Mode mode) {
  return Without("MODE_", v1::Mode_Name(mode));
}

std::string StalenessQuantile(const v1::Counters& counters, double part) {
  int64_t all = 0;
  for (const int64_t count : counters.staleness_histogram()) all += count;
  if (all == 0) return "-";
  int64_t below = 0;
  const int last = counters.staleness_histogram_size() - 1;
  for (int staleness = 0; staleness <= last; ++staleness) {
    below += counters.staleness_histogram(staleness);
    if (static_cast<double>(below) < part * static_cast<double>(all)) continue;
    return absl::StrCat(staleness, staleness == last ? "+" : "");
  }
  return "-";
}

double QuantileOf(const Distribution& distribution, double part) {
  const auto all = static_cast<double>(distribution.count());
  if (all == 0) return std::numeric_limits<double>::quiet_NaN();
  double below = 0;
  for (size_t i = 0; i < distribution.limits().size(); ++i) {
    const auto inside = static_cast<double>(distribution.count_in(i));
    if (inside > 0 && below + inside >= part * all) {
      const double low = i == 0 ? 0 : distribution.limits()[i - 1];
      return low + (distribution.limits()[i] - low) * (part * all - below) / inside;
    }
    below += inside;
  }
  return distribution.limits().back();
}

std::string ShareOf(int64_t part, int64_t all) {
  if (all == 0) return "-";
  return absl::StrFormat("%.0f %%", 100 * static_cast<double>(part) / static_cast<double>(all));
}

std::string HottestOf(const google::protobuf::RepeatedPtrField<v1::HotRow>& hottest) {
  if (hottest.empty()) return "-";
  return absl::StrJoin(hottest, ", ", [](std::string* out, const v1::HotRow& row) {
    absl::StrAppendFormat(out, "%d (%.1f %%)", row.id(), 100 * row.share());
  });
}

std::string StragglerOf(const v1::ServerStatus& status) {
  constexpr int64_t kFewestRounds = 20;
  int64_t rounds = 0;
  const v1::Member* slowest = nullptr;
  for (const v1::Member& member : status.members()) {
    rounds += member.times_last();
    if (slowest == nullptr || member.times_last() > slowest->times_last()) slowest = &member;
  }
  if (rounds < kFewestRounds || status.members_size() < 2) return "";
  const double part = static_cast<double>(slowest->times_last()) / static_cast<double>(rounds);
  if (part <= 2.0 / status.members_size() && part < 0.75) return "";
  return absl::StrFormat("%s, last in %.0f %% of the rounds, %s behind the first on average", slowest->task(),
                         100 * part,
                         InTime(slowest->late_seconds() / static_cast<double>(slowest->times_last())));
}

std::string HeadlineOf(const v1::ServerStatus& status) {
  if (status.state() == v1::STATE_FAILED) return absl::StrCat("the job failed: ", status.failure());
  if (status.state() == v1::STATE_EMPTY) return "waits for a chief to declare a job";
  if (status.state() == v1::STATE_INITIALISING) return "waits for the first values of the variables";
  if (status.state() == v1::STATE_BACKUP) return "stores the backup of a shard that another server serves";
  const v1::Job& job = status.job();
  std::string text =
      job.mode() == v1::MODE_VARIABLES
          ? "named variables, no training"
          : absl::StrCat("job ", job.run_id(), ", ", NameOf(job.mode()), ", ", job.optimizer().name(), " at ",
                         absl::StrFormat("%.4g", status.learning_rate()), ", ",
                         Counted(job.workers_size(), "worker"), ", ", Counted(job.servers_size(), "server"));
  if (status.state() == v1::STATE_FINISHED) return absl::StrCat(text, "; training is over");
  if (!status.waiting_for().empty() && status.waiting_seconds() > kNoticeableSeconds) {
    absl::StrAppend(&text, "; for ", InTime(status.waiting_seconds()), " everybody has been waiting for ",
                    absl::StrJoin(status.waiting_for(), ", "));
  }
  if (const std::string straggler = StragglerOf(status); !straggler.empty()) {
    absl::StrAppend(&text, "; straggler: ", straggler);
  }
  return text;
}

}  // namespace cairn::monitor

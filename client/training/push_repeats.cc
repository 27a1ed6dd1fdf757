#include "client/training/push_repeats.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::client {

PushRepeats::PushRepeats(Connection& connection, Options options)
    : connection_(connection),
      options_(std::move(options)),
      backoff_(StreamOf(options_.task)),
      next_report_(SteadyNow() + kLogEvery) {}

absl::StatusOr<bool> PushRepeats::Run(TimePoint until, Wait wait, Repeat repeat) {
  for (;;) {
    CAIRN_ASSIGN_OR_RETURN(const Unanswered unanswered, wait(&next_report_));
    if (unanswered.failed.empty()) return unanswered.waiting.empty();
    if (SteadyNow() >= options_.deadline) return down_.ok() ? unanswered.failure : down_;
    CAIRN_RETURN_IF_ERROR(CheckWorthRepeating(unanswered));
    Report(unanswered.failure);
    std::this_thread::sleep_for(backoff_.Next());
    CAIRN_RETURN_IF_ERROR(options_.failure());
    CAIRN_RETURN_IF_ERROR(RepeatAll(unanswered.failed, repeat));
    if (SteadyNow() >= until) return false;
  }
}

absl::Status PushRepeats::CheckWorthRepeating(const Unanswered& unanswered) {
  if (IsWorthRepeating(unanswered.failure)) return absl::OkStatus();
  // The failure may concern a single server, while another server already serves its shard.
  const int moves = connection_.moves();
  for (int server : unanswered.failed) {
    if (connection_.replicated()) (void)connection_.Describe(server);
  }
  return connection_.moves() == moves ? unanswered.failure : absl::OkStatus();
}

void PushRepeats::Report(const absl::Status& failure) {
  if (SteadyNow() < next_complaint_) return;
  next_complaint_ = SteadyNow() + kLogEvery;
  const std::string why =
      down_.ok() ? std::string(failure.message())
                 : absl::StrCat(down_.message(), " (",
                                HowLong(options_.deadline - options_.limit, options_.limit), ")");
  connection_.Report(absl::StrCat(options_.step, ": ", why, "; the push will be sent again"));
}

absl::Status PushRepeats::RepeatAll(const std::vector<int>& servers, Repeat repeat) {
  down_ = absl::OkStatus();
  for (int server : servers) {
    const absl::Status status = repeat(server);
    if (!status.ok() && !IsTransient(status)) return status;
    if (!status.ok()) {
      down_ = absl::UnavailableError(
          absl::StrCat(connection_.NameOf(server), " is down or unreachable: ", net::WhyUnreachable(status)));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::client

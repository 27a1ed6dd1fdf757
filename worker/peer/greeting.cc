#include "worker/peer/greeting.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::allreduce {
namespace {

constexpr auto kGreetTimeout = std::chrono::milliseconds(2000);
constexpr auto kLogEvery = std::chrono::seconds(10);

}  // namespace

absl::StatusOr<v1::GreetResponse> GreetUntilAnswered(const Greeting& greeting) {
  net::Backoff backoff(greeting.request.incarnation(), std::chrono::milliseconds(20),
                       std::chrono::milliseconds(500));
  TimePoint log_at = SteadyNow() + kLogEvery;
  std::string why;
  for (;;) {
    CAIRN_RETURN_IF_ERROR(greeting.check());
    v1::GreetResponse response;
    const absl::Status status = greeting.peer.Greet(greeting.request, &response, kGreetTimeout);
    if (status.ok()) {
      CAIRN_ASSIGN_OR_RETURN(why, greeting.judge(response));
      if (why.empty()) return response;
    } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      why = net::WhyUnreachable(status, why);
    } else {
      return Annotate(status, greeting.name);
    }
    if (SteadyNow() >= greeting.deadline) {
      return absl::UnavailableError(absl::StrCat(greeting.name, " was not reached in time: ", why));
    }
    if (SteadyNow() >= log_at) {
      if (greeting.say) greeting.say(absl::StrCat("waiting for ", greeting.name, ": ", why));
      log_at += kLogEvery;
    }
    greeting.wait(std::min<TimePoint>(greeting.deadline, SteadyNow() + backoff.Next()));
  }
}

}  // namespace cairn::allreduce

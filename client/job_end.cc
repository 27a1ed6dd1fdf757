#include "client/job_end.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"

namespace cairn::client {
namespace {

// At the end of training, a lost server has this long to return. It then reports the end or is notified of
// it.
constexpr auto kReturnAtEnd = std::chrono::seconds(10);
constexpr auto kReturnIfWorkersAreAwaited = std::chrono::seconds(60);
// A single interval between two looks counts for at most this much silence.
constexpr Duration kLongestLook = std::chrono::seconds(5);

}  // namespace

constexpr absl::string_view kOver = "training is over";

absl::Status TrainingIsOver() {
  return absl::OutOfRangeError(kOver);
}

// The code alone is not enough: a file that is too large (EFBIG) has the same code.
bool IsOver(const absl::Status& status) {
  return absl::IsOutOfRange(status) && absl::StrContains(status.message(), kOver);
}

absl::Status CheckGoesOn(const v1::ConnectResponse& described) {
  return described.state() == v1::STATE_FINISHED ? TrainingIsOver() : absl::OkStatus();
}

Duration SilenceLimit(const v1::Job& job) {
  return job.wait_for_return() ? kReturnIfWorkersAreAwaited : kReturnAtEnd;
}

bool Silence::IsTheEnd(bool answered, TimePoint now) {
  const Duration looked = std::min<Duration>(now - std::exchange(looked_at_, now), kLongestLook);
  silence_ = answered ? Duration::zero() : silence_ + looked;
  return silence_ >= limit_;
}

absl::Status AwaitEnd(Connection& connection, int worker, const EndLimits& limits,
                      absl::FunctionRef<absl::Status()> watch) {
  v1::WaitRequest request;
  request.set_condition(v1::CONDITION_OVER);
  request.set_worker(worker);
  request.set_wait_seconds(2);
  net::Backoff backoff(StreamOf(connection.options().task));
  Silence silence(limits.silence, SteadyNow());
  TimePoint moved_at = SteadyNow();
  int64_t version = 0;  // the sum over all servers
  for (;;) {
    v1::WaitResponse response;
    const absl::Status waited = connection.stub(0).Call(request, &response, kCallTimeout);
    if (waited.ok() && response.holds()) return absl::OkStatus();
    int64_t sum = 0;
    bool answered = false;
    for (int server = 0; server < connection.num_servers(); ++server) {
      const auto described = connection.Describe(server);
      if (absl::IsAborted(described.status())) return described.status();
      if (!described.ok()) continue;
      if (described->state() == v1::STATE_FINISHED) return absl::OkStatus();
      if (described->state() == v1::STATE_FAILED && !waited.ok()) return waited;
      answered = true;
      sum += described->version();
    }
    CAIRN_RETURN_IF_ERROR(watch());
    const TimePoint now = SteadyNow();
    if (sum > version) moved_at = now;
    version = std::max(version, sum);
    if (silence.IsTheEnd(answered, now) || now - moved_at > limits.unchanged) return absl::OkStatus();
    if (!waited.ok()) std::this_thread::sleep_for(backoff.Next());
  }
}

absl::Status EndServers(Connection& connection) {
  absl::Status first;
  const auto finish = [&](int server, ServerStub& stub, Duration patience) {
    const TimePoint deadline = SteadyNow() + patience;
    const std::string name = absl::StrCat("ps/", server, " at ", stub.address());
    net::Backoff backoff(StreamOf(connection.options().task));
    absl::Status status;
    for (;;) {
      v1::FinishResponse response;
      status = stub.Call(v1::FinishRequest(), &response, kCallTimeout);
      // An unreachable server may be restarted, and would wait for work if it were not notified.
      if (!absl::IsUnavailable(status) || SteadyNow() >= deadline) break;
      std::this_thread::sleep_for(backoff.Next());
    }
    if (absl::IsUnavailable(status)) {
      connection.Report(absl::StrCat(name, " was lost before it could be notified that training is over"));
    } else {
      first.Update(Annotate(status, absl::StrCat("ending ", name)));
    }
  };
  // A process ends when its own shard is finished, so shards that it serves for other servers come first.
  for (int server = 0; server < connection.num_servers(); ++server) {
    if (connection.away(server)) finish(server, connection.stub(server), kReturnAtEnd);
  }
  for (int server = 0; server < connection.num_servers(); ++server) {
    // The time for which another server has served the shard counts as a part of the limit.
    const Duration had = std::min<Duration>(connection.AwayFor(server), kReturnAtEnd);
    finish(server, connection.home(server), kReturnAtEnd - had);
  }
  return first;
}

}  // namespace cairn::client

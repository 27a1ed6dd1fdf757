#include "client/transport/connection.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/clock.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::client {
namespace {

// The time limit of a query to one of two hosts, if the other one may also have the answer.
constexpr Timeout kProbe = std::chrono::seconds(1);
constexpr auto kFirstTry = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(500);
constexpr auto kLogEvery = std::chrono::seconds(10);

}  // namespace

bool IsWorthRepeating(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

int Connection::moves() const {
  int moves = 0;
  for (int server = 0; server < num_servers(); ++server) moves += this->moves(server);
  return moves;
}

Connection::Connection(std::vector<std::unique_ptr<ServerStub>> stubs, ConnectionOptions options)
    : options_(std::move(options)), known_(stubs.size()), moved_at_(stubs.size()) {
  const int count = static_cast<int>(stubs.size());
  for (int server = 0; server < count; ++server) {
    Shard& shard = shards_.emplace_back();
    shard.home = std::move(stubs[static_cast<size_t>(server)]);
    if (options_.stub_factory && count > 1)
      shard.backup = options_.stub_factory(server, (server + 1) % count);
  }
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(std::vector<std::unique_ptr<ServerStub>> stubs,
                                                             ConnectionOptions options) {
  std::unique_ptr<Connection> connection(new Connection(std::move(stubs), std::move(options)));
  CAIRN_RETURN_IF_ERROR(connection->Reach());
  return connection;
}

absl::Status Connection::Reach() {
  const TimePoint start = SteadyNow();
  const TimePoint deadline = start + options_.connect_timeout;
  TimePoint next_said = start + kLogEvery;
  net::Backoff backoff(StreamOf(options_.task), kFirstTry, kLongestPause);
  std::vector<std::string> reason_of(static_cast<size_t>(num_servers()));
  std::vector<int> unreached;
  for (int server = 0; server < num_servers(); ++server) unreached.push_back(server);
  for (;;) {
    std::vector<int> still;
    std::vector<std::string> reasons;
    for (int server : unreached) {
      const absl::Status status = Find(server);
      if (status.ok()) continue;
      if (IsTransient(status)) {
        still.push_back(server);
        std::string& reason = reason_of[static_cast<size_t>(server)];
        reason = net::WhyUnreachable(status, reason);
        reasons.push_back(absl::StrCat(NameOf(server), ": ", reason));
      } else {
        return Annotate(status, NameOf(server));
      }
    }
    if (still.empty()) return absl::OkStatus();
    if (stopped()) return absl::CancelledError("stopped");
    unreached = std::move(still);
    if (SteadyNow() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "not reached within ", std::chrono::duration_cast<std::chrono::seconds>(deadline - start).count(),
          " s: ", absl::StrJoin(reasons, "; ")));
    }
    if (SteadyNow() >= next_said) {
      next_said += kLogEvery;
      Report(absl::StrCat("waiting for ", absl::StrJoin(reasons, "; "), " (",
                          HowLong(start, options_.connect_timeout), ")"));
    }
    std::this_thread::sleep_until(std::min<TimePoint>(deadline, SteadyNow() + backoff.Next()));
  }
}

ShardSearch::Known Connection::KnownOf(int server) {
  MutexLock lock(mutex_);
  return known_[static_cast<size_t>(server)];
}

absl::StatusOr<v1::ConnectResponse> Connection::Handshake(int server, bool away,
                                                          const ShardSearch::Known& known, Timeout timeout) {
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_server(server);
  request.set_client(options_.task);
  request.set_incarnation(known.incarnation);
  request.set_epoch(known.epoch);
  request.set_epoch_seal(known.epoch_seal);
  v1::ConnectResponse response;
  const TimePoint sent = SteadyNow();
  CAIRN_RETURN_IF_ERROR(shard(server).at(away).Call(request, &response, timeout));
  NoteClock(server, sent, response.clock_unix_nanos());
  if (response.job().ps_replication() > 0) replicated_ = true;
  return response;
}

void Connection::Settle(int server, const ShardSearch::Found& found, bool only_known) {
  Shard& settled = shard(server);
  {
    MutexLock lock(mutex_);
    ShardSearch::Known& known = known_[static_cast<size_t>(server)];
    const ShardSearch::Known next = found.known();
    // Another thread has found a later server of this shard. Reach() nevertheless accepts an earlier server:
    // the later one may be lost, and the backup of the earlier one may have been promoted.
    if (only_known && next.IsBefore(known)) return;
    known = next;
    if (settled.away == found.away) return;
    settled.away = found.away;
    ++settled.moves;
    moved_at_[static_cast<size_t>(server)] = SteadyNow();
  }
  Report(
      absl::StrCat("the shard of ps/", server, " is served by ", settled.at(found.away).address(), " now"));
}

absl::StatusOr<v1::ConnectResponse> Connection::Search(int server, const ShardSearch::Options& options) {
  ShardSearch search(options);
  while (const auto question = search.question()) {
    const Timeout timeout = question->brief ? kProbe : kCallTimeout;
    if (question->call == ShardSearch::Question::Call::kConnect) {
      search.OnConnected(Handshake(server, question->away, options.known, timeout));
    } else {
      v1::PromoteRequest request;
      request.set_incarnation(options.known.incarnation);
      v1::PromoteResponse response;
      search.OnPromoted(shard(server).at(question->away).Call(request, &response, timeout));
    }
  }
  CAIRN_RETURN_IF_ERROR(search.result());
  Settle(server, *search.result(), options.only_known);
  return search.result()->response;
}

absl::Status Connection::Find(int server) {
  const bool has_backup = shard(server).backup != nullptr;
  return Search(server, {.away = shard(server).away, .has_backup = has_backup, .known = KnownOf(server)})
      .status();
}

void Connection::NoteClock(int server, TimePoint sent, int64_t clock_unix_nanos) const {
  // If the shard has moved, the answer contains the clock of another task.
  if (options_.trace == nullptr || clock_unix_nanos == 0 || shard(server).away) return;
  options_.trace->AddClockSample(absl::StrCat("ps/", server), sent, SteadyNow(), clock_unix_nanos);
}

absl::StatusOr<v1::ConnectResponse> Connection::Describe(int server) {
  const ShardSearch::Known known = KnownOf(server);
  auto response = Search(server, {.away = shard(server).away,
                                  .has_backup = shard(server).backup != nullptr && replicated_,
                                  .known = known,
                                  .only_known = known.incarnation != 0});
  if (absl::IsAborted(response.status())) {
    return absl::AbortedError(absl::StrCat(NameOf(server), " has been restarted and has lost its variables"));
  }
  CAIRN_RETURN_IF_ERROR(Annotate(response.status(), NameOf(server)));
  return response;
}

absl::StatusOr<std::vector<v1::ConnectResponse>> Connection::DescribeAll() {
  const TimePoint deadline = SteadyNow() + options_.connect_timeout;
  net::Backoff backoff(StreamOf(options_.task), kFirstTry, kLongestPause);
  std::vector<v1::ConnectResponse> responses;
  while (static_cast<int>(responses.size()) < num_servers()) {
    auto response = Describe(static_cast<int>(responses.size()));
    if (response.ok()) {
      responses.push_back(*std::move(response));
      continue;
    }
    if (!IsTransient(response.status()) || SteadyNow() >= deadline) return response.status();
    if (stopped()) return absl::CancelledError("stopped");
    std::this_thread::sleep_for(backoff.Next());
  }
  return responses;
}

absl::StatusOr<v1::WaitResponse> Connection::WaitUntil(const Awaited& awaited,
                                                       absl::FunctionRef<absl::Status()> watch) {
  const int server = awaited.server;
  const TimePoint start = SteadyNow();
  const TimePoint deadline = start + awaited.timeout;
  TimePoint next_said = start + kLogEvery;
  net::Backoff backoff(StreamOf(options_.task), kFirstTry, kLongestPause);
  for (;;) {
    v1::WaitRequest request;
    request.set_condition(awaited.condition);
    request.set_worker(awaited.worker);
    request.set_wait_seconds(1);
    v1::WaitResponse response;
    const absl::Status status = stub(server).Call(request, &response, kCallTimeout);
    std::string missing = absl::StrCat(NameOf(server), ": ", response.missing());
    if (status.ok() && response.holds()) return response;
    if (replicated_) (void)Describe(server);  // its backup may have been promoted
    if (IsTransient(status)) {
      missing = absl::StrCat(NameOf(server), ": ", net::WhyUnreachable(status));
      std::this_thread::sleep_for(backoff.Next());
    } else if (!status.ok()) {
      return Annotate(status, NameOf(server));
    }
    CAIRN_RETURN_IF_ERROR(watch());
    if (stopped()) return absl::CancelledError("stopped");
    if (SteadyNow() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("waited ", std::chrono::duration_cast<std::chrono::seconds>(awaited.timeout).count(),
                       " s for ", missing));
    }
    if (SteadyNow() >= next_said) {
      next_said += kLogEvery;
      Report(absl::StrCat("waiting for ", missing, " (", HowLong(start, awaited.timeout), ")"));
    }
  }
}

Duration Connection::AwayFor(int server) const {
  MutexLock lock(mutex_);
  return away(server) ? SteadyNow() - moved_at_[static_cast<size_t>(server)] : Duration::zero();
}

std::string HowLong(TimePoint start, Duration limit) {
  const auto seconds = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  return absl::StrCat(seconds(SteadyNow() - start), " of at most ", seconds(limit), " s");
}

std::string Connection::NameOf(int server) const {
  return absl::StrCat("ps/", server, " at ", shard(server).here().address());
}

absl::StatusOr<std::vector<std::vector<net::Slice>>> SlicesOf(
    const std::vector<v1::ConnectResponse>& described) {
  std::vector<std::vector<net::Slice>> slices;
  for (const v1::ConnectResponse& response : described) {
    slices.emplace_back();
    for (const v1::VariableSlice& proto : response.slices()) {
      CAIRN_ASSIGN_OR_RETURN(net::Slice slice, net::Slice::FromProto(proto));
      slices.back().push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace cairn::client

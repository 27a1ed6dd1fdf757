#include "worker/client/connection.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/backoff.h"
#include "common/net/grpc_util.h"
#include "common/net/unreachable.h"

namespace cairn::client {
namespace {

constexpr Timeout kCallTimeout = std::chrono::seconds(10);
// For the answer of one of two servers, when the other may have it too.
constexpr Timeout kProbe = std::chrono::seconds(1);
constexpr auto kFirstTry = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(500);
constexpr auto kSayEvery = std::chrono::seconds(10);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Perhaps it is at the other place: this one cannot be reached, or has been started again.
bool IsElsewhere(const absl::Status& status) {
  return IsTransient(status) || absl::IsNotFound(status);
}

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
    : options_(std::move(options)), known_(stubs.size()) {
  const int count = static_cast<int>(stubs.size());
  for (int server = 0; server < count; ++server) {
    Part& part = parts_.emplace_back();
    part.home = std::move(stubs[static_cast<size_t>(server)]);
    if (options_.at_place && count > 1) part.copy = options_.at_place(server, (server + 1) % count);
  }
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(std::vector<std::unique_ptr<ServerStub>> stubs,
                                                             ConnectionOptions options) {
  std::unique_ptr<Connection> connection(new Connection(std::move(stubs), std::move(options)));
  CAIRN_RETURN_IF_ERROR(connection->Reach());
  return connection;
}

absl::Status Connection::Reach() {
  const TimePoint start = Now();
  const TimePoint deadline = start + options_.connect_timeout;
  TimePoint next_said = start + kSayEvery;
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
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "not reached within ", std::chrono::duration_cast<std::chrono::seconds>(deadline - start).count(),
          " s: ", absl::StrJoin(reasons, "; ")));
    }
    if (Now() >= next_said) {
      next_said += kSayEvery;
      Say(absl::StrCat("waiting for ", absl::StrJoin(reasons, "; ")));
    }
    std::this_thread::sleep_until(std::min<TimePoint>(deadline, Now() + backoff.Next()));
  }
}

Connection::Known Connection::KnownOf(int server) {
  MutexLock lock(mutex_);
  return known_[static_cast<size_t>(server)];
}

absl::Status Connection::Handshake(int server, bool away, Timeout timeout, v1::ConnectResponse* response) {
  const Known known = KnownOf(server);
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_server(server);
  request.set_client(options_.task);
  request.set_incarnation(known.incarnation);
  request.set_epoch(known.epoch);
  const TimePoint sent = Now();
  CAIRN_RETURN_IF_ERROR(part(server).at(away).Connect(request, response, timeout));
  NoteClock(server, sent, response->clock_unix_nanos());
  if (response->job().ps_replication() > 0) replicated_ = true;
  return absl::OkStatus();
}

bool Connection::Serves(const v1::ConnectResponse& response, const Known& known) {
  if (response.state() == v1::STATE_COPY) return false;
  if (known.incarnation == 0) return response.state() != v1::STATE_EMPTY;
  return response.incarnation() == known.incarnation && response.epoch() >= known.epoch;
}

void Connection::Settle(int server, bool away, const v1::ConnectResponse& response) {
  Part& settled = part(server);
  {
    MutexLock lock(mutex_);
    Known& known = known_[static_cast<size_t>(server)];
    // Another thread has heard of who serves it since.
    if (known.incarnation == response.incarnation() && response.epoch() < known.epoch) return;
    known = {response.incarnation(), response.epoch()};
    if (settled.away == away) return;
    settled.away = away;
    ++settled.moves;
  }
  Say(absl::StrCat("ps/", server, "'s part is served by ", settled.at(away).address(), " now"));
}

absl::StatusOr<v1::ConnectResponse> Connection::LookElsewhere(int server, bool away, const Known& known) {
  v1::ConnectResponse response;
  CAIRN_RETURN_IF_ERROR(Handshake(server, !away, kProbe, &response));
  const bool same = known.incarnation == 0 || response.incarnation() == known.incarnation;
  if (response.state() == v1::STATE_COPY && same) {
    v1::PromoteRequest request;
    request.set_incarnation(known.incarnation);
    v1::PromoteResponse promoted;
    CAIRN_RETURN_IF_ERROR(part(server).at(!away).Promote(request, &promoted, kProbe));
    CAIRN_RETURN_IF_ERROR(Handshake(server, !away, kProbe, &response));
  }
  if (!Serves(response, known))
    return absl::NotFoundError(absl::StrCat("ps/", server, "'s part is not there"));
  return response;
}

absl::Status Connection::Find(int server) {
  const bool away = part(server).away;
  v1::ConnectResponse response;
  const absl::Status status = Handshake(server, away, kCallTimeout, &response);
  if (!status.ok() && !IsElsewhere(status)) return status;
  const bool serves = status.ok() && Serves(response, {});
  if (!serves && part(server).copy != nullptr) {
    const auto elsewhere = LookElsewhere(server, away, {});
    if (elsewhere.ok()) {
      Settle(server, !away, *elsewhere);
      return absl::OkStatus();
    }
    // It is lost only when both have said so.
    if (IsTransient(elsewhere.status())) return elsewhere.status();
    if (away && !IsTransient(status)) {  // it begins anew at home
      v1::ConnectResponse home;
      CAIRN_RETURN_IF_ERROR(Handshake(server, false, kCallTimeout, &home));
      Settle(server, false, home);
      return absl::OkStatus();
    }
  }
  CAIRN_RETURN_IF_ERROR(status);
  Settle(server, away, response);
  return absl::OkStatus();
}

void Connection::NoteClock(int server, TimePoint sent, int64_t clock_unix_nanos) const {
  // Where its part has moved to, another task's clock answers.
  if (options_.trace == nullptr || clock_unix_nanos == 0 || part(server).away) return;
  options_.trace->AddClockSample(absl::StrCat("ps/", server), sent, Now(), clock_unix_nanos);
}

absl::StatusOr<v1::ConnectResponse> Connection::Describe(int server) {
  const bool away = part(server).away;
  const Known known = KnownOf(server);
  const bool has_copy = part(server).copy != nullptr && replicated_;
  v1::ConnectResponse response;
  absl::Status status = Handshake(server, away, has_copy ? kProbe : kCallTimeout, &response);
  if (status.ok() && Serves(response, known)) {
    Settle(server, away, response);
    return response;
  }
  if (has_copy && (status.ok() || IsElsewhere(status))) {
    auto elsewhere = LookElsewhere(server, away, known);
    if (elsewhere.ok()) {
      Settle(server, !away, *elsewhere);
      return elsewhere;
    }
    if (!IsTransient(status) && IsTransient(elsewhere.status())) status = elsewhere.status();
  }
  if (!absl::IsNotFound(status)) CAIRN_RETURN_IF_ERROR(Annotate(status, NameOf(server)));
  return absl::AbortedError(absl::StrCat(NameOf(server), " has been restarted and has lost its variables"));
}

absl::StatusOr<std::vector<v1::ConnectResponse>> Connection::DescribeAll() {
  const TimePoint deadline = Now() + options_.connect_timeout;
  net::Backoff backoff(StreamOf(options_.task), kFirstTry, kLongestPause);
  std::vector<v1::ConnectResponse> responses;
  while (static_cast<int>(responses.size()) < num_servers()) {
    auto response = Describe(static_cast<int>(responses.size()));
    if (response.ok()) {
      responses.push_back(*std::move(response));
      continue;
    }
    if (!IsTransient(response.status()) || Now() >= deadline) return response.status();
    if (stopped()) return absl::CancelledError("stopped");
    std::this_thread::sleep_for(backoff.Next());
  }
  return responses;
}

absl::Status Connection::WaitUntil(int server, v1::Condition condition, int worker, Duration timeout,
                                   absl::FunctionRef<absl::Status()> watch, v1::WaitResponse* answer) {
  const TimePoint start = Now();
  const TimePoint deadline = start + timeout;
  TimePoint next_said = start + kSayEvery;
  net::Backoff backoff(StreamOf(options_.task), kFirstTry, kLongestPause);
  for (;;) {
    v1::WaitRequest request;
    request.set_condition(condition);
    request.set_worker(worker);
    request.set_wait_seconds(1);
    v1::WaitResponse response;
    const absl::Status status = stub(server).Wait(request, &response, kCallTimeout);
    std::string missing = absl::StrCat(NameOf(server), ": ", response.missing());
    if (status.ok() && response.holds()) {
      if (answer != nullptr) *answer = std::move(response);
      return absl::OkStatus();
    }
    if (replicated_) (void)Describe(server);  // its copy may have taken its place
    if (replicated_ ? IsElsewhere(status) : IsTransient(status)) {
      missing = absl::StrCat(NameOf(server), ": ", net::WhyUnreachable(status));
      std::this_thread::sleep_for(backoff.Next());
    } else if (!status.ok()) {
      return Annotate(status, NameOf(server));
    }
    CAIRN_RETURN_IF_ERROR(watch());
    if (stopped()) return absl::CancelledError("stopped");
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          "waited ", std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), " s for ", missing));
    }
    if (Now() >= next_said) {
      next_said += kSayEvery;
      Say(absl::StrCat("waiting for ", missing));
    }
  }
}

std::string Connection::NameOf(int server) const {
  return absl::StrCat("ps/", server, " at ", part(server).here().address());
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

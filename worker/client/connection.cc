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
constexpr auto kFirstTry = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(500);
constexpr auto kSayEvery = std::chrono::seconds(10);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

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
      v1::ConnectResponse response;
      const absl::Status status = Handshake(server, &response);
      if (status.ok()) {
        MutexLock lock(mutex_);
        incarnations_[static_cast<size_t>(server)] = response.incarnation();
      } else if (IsTransient(status)) {
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

absl::Status Connection::Handshake(int server, v1::ConnectResponse* response) {
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_server(server);
  request.set_client(options_.task);
  const TimePoint sent = Now();
  const absl::Status status = stub(server).Connect(request, response, kCallTimeout);
  if (status.ok()) NoteClock(server, sent, response->clock_unix_nanos());
  return status;
}

void Connection::NoteClock(int server, TimePoint sent, int64_t clock_unix_nanos) const {
  if (options_.trace == nullptr || clock_unix_nanos == 0) return;
  options_.trace->AddClockSample(absl::StrCat("ps/", server), sent, Now(), clock_unix_nanos);
}

absl::StatusOr<v1::ConnectResponse> Connection::Describe(int server) {
  v1::ConnectResponse response;
  CAIRN_RETURN_IF_ERROR(Annotate(Handshake(server, &response), NameOf(server)));
  MutexLock lock(mutex_);
  if (response.incarnation() != incarnations_[static_cast<size_t>(server)]) {
    return absl::AbortedError(absl::StrCat(NameOf(server), " has been restarted and has lost its variables"));
  }
  return response;
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
    if (IsTransient(status)) {
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
  return absl::StrCat("ps/", server, " at ", stubs_[static_cast<size_t>(server)]->address());
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

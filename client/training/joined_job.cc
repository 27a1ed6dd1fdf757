#include "client/training/joined_job.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_end.h"
#include "client/this_process.h"
#include "common/core/clock.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"

namespace cairn::client {
namespace {

constexpr Timeout kLeaveTimeout = std::chrono::seconds(2);
constexpr auto kLogEvery = std::chrono::seconds(10);

}  // namespace

JoinedJob::JoinedJob(Connection& connection, Options options)
    : connection_(connection),
      options_(std::move(options)),
      process_(DrawProcess()),
      worker_(options_.worker),
      heartbeats_(connection_, {.report = options_.report, .changed = options_.changed}) {}

absl::StatusOr<JoinedJob::Admission> JoinedJob::Join() {
  Admission admission;
  CAIRN_RETURN_IF_ERROR(Persist([&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(admission, JoinOnce());
    return absl::OkStatus();
  }));
  heartbeats_.Start({.worker = worker_,
                     .incarnation = incarnation_,
                     .lease = FromSeconds(learnt_.job.lease_seconds()),
                     .step_timeout = options_.step_timeout});
  return admission;
}

absl::StatusOr<JoinedJob::Admission> JoinedJob::JoinOnce() {
  v1::JoinRequest request;
  request.set_worker(learnt_.job.elastic() ? -1 : options_.worker);
  request.set_task(options_.task);
  *request.mutable_process() = process_;
  Admission admission;
  StartingPoint& start = admission.start;
  start.version_offset = learnt_.job.resumed().version_offset();
  for (int server = 0; server < connection_.num_servers(); ++server) {
    v1::JoinResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection_.stub(server).Call(request, &response, kCallTimeout),
                                   absl::StrCat("joining at ", connection_.NameOf(server))));
    if (server == 0) {
      request.set_incarnation(response.incarnation());
      request.set_incarnation_seal(response.incarnation_seal());
      worker_ = response.worker();
      start.clock = response.clock();
      admission.work = response.work();
    }
    request.set_worker(response.worker());
    // An earlier push of this worker may have reached only some of the servers. This worker must not repeat
    // it, so the highest position on any server counts.
    start.position = server == 0 ? response.position() : std::max(start.position, response.position());
  }
  incarnation_ = request.incarnation();
  return admission;
}

void JoinedJob::Leave(v1::LeaveReason reason, const std::string& message) {
  if (!was_member()) return;
  v1::LeaveRequest request;
  request.set_worker(worker_);
  request.set_incarnation(incarnation_);
  request.set_reason(reason);
  request.set_message(message);
  for (int server = 0; server < connection_.num_servers(); ++server) {
    v1::LeaveResponse response;
    const absl::Status left = connection_.stub(server).Call(request, &response, kLeaveTimeout);
    if (left.ok() || !connection_.replicated()) continue;
    if (!connection_.Describe(server).ok()) continue;  // finds where the shard is served now
    (void)connection_.stub(server).Call(request, &response, kLeaveTimeout);
  }
  heartbeats_.StopSoon();
}

std::string JoinedJob::NextMarker() {
  return absl::StrCat(options_.task, "#", incarnation_, ".", ++markers_);
}

absl::Status JoinedJob::Persist(absl::FunctionRef<absl::Status()> attempt) {
  const TimePoint start = SteadyNow();
  const TimePoint deadline = start + options_.step_timeout;
  TimePoint next_said = start + kLogEvery;
  net::Backoff backoff(StreamOf(options_.task));
  for (;;) {
    const int moves = connection_.moves();
    const absl::Status status = attempt();
    if (status.ok() || absl::IsCancelled(status)) return status;
    // A restarted server has lost its variables, which the status of this attempt may not show.
    for (int server = 0; server < connection_.num_servers(); ++server) {
      const auto described = connection_.Describe(server);
      if (absl::IsAborted(described.status())) return described.status();
      if (described.ok()) CAIRN_RETURN_IF_ERROR(CheckGoesOn(*described));
    }
    const bool transient =
        IsWorthRepeating(status) || absl::IsDeadlineExceeded(status) || connection_.moves() != moves;
    if (!transient || SteadyNow() >= deadline) return status;
    if (SteadyNow() >= next_said) {
      next_said += kLogEvery;
      connection_.Report(
          absl::StrCat("trying again (", HowLong(start, options_.step_timeout), "): ", status.message()));
    }
    std::this_thread::sleep_for(backoff.Next());
    CAIRN_RETURN_IF_ERROR(failure());
    if (connection_.stopped()) return absl::CancelledError("stopped");
  }
}

void JoinedJob::Interrupt(absl::Status reason) {
  {
    MutexLock lock(mutex_);
    interruption_ = std::move(reason);
  }
  options_.changed();
}

absl::Status JoinedJob::interruption() const {
  MutexLock lock(mutex_);
  return interruption_;
}

absl::Status JoinedJob::failure() const {
  CAIRN_RETURN_IF_ERROR(interruption());
  return heartbeats_.failure();
}

}  // namespace cairn::client

// Calls of clients as members of the job: Join, Heartbeat, Leave and Wait.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/net/security/seal.h"
#include "ps/job/incarnation.h"
#include "ps/job/server.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

// How long workers may take to join again after a rollback: they may be in the middle of a step.
constexpr auto kReturn = std::chrono::seconds(30);
// Limits, in bytes, on the name ("worker/4095") and the device names that are kept for each worker.
constexpr size_t kMaxTaskName = 256, kMaxDeviceName = 4096;

// The facts that the seal of an incarnation covers.
std::vector<std::string> IncarnationFacts(const v1::Job& job, int worker, uint64_t incarnation) {
  return {"incarnation", job.run_id(), absl::StrCat(job.generation()), absl::StrCat(worker),
          absl::StrCat(incarnation)};
}

// "process 4242 on node-3 (ipv4:10.0.0.3:50114)"
std::string Describe(const v1::Process& process) {
  return absl::StrCat("process ", process.pid(), " on ",
                      process.host().empty() ? "an unknown host" : process.host(),
                      process.address().empty() ? "" : absl::StrCat(" (", process.address(), ")"));
}

}  // namespace

void Server::Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply) {
  absl::Status status;
  v1::JoinResponse response;
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    status = CheckReady();
    if (status.ok()) {
      const auto admitted = AdmitWorker(request);
      status = admitted.status();
      if (admitted.ok()) response.set_worker(*admitted);
    }
    if (status.ok()) status = CheckSealed(request, response.worker());
    // If the request has an incarnation, the server that drew it has made this check for all servers.
    if (status.ok() && request.incarnation() == 0) status = CheckAvailable(request, response.worker());
    if (status.ok()) {
      const uint64_t incarnation =
          members_.Join(response.worker(), request.incarnation(), clock_.Now(), request.process());
      response.set_incarnation(incarnation);
      response.set_incarnation_seal(
          net::SealOf(job_->seal_key(), IncarnationFacts(job_->job(), response.worker(), incarnation)));
      if (incarnation == 0) {
        status = absl::AbortedError(absl::StrCat(request.task(), " has been restarted since: incarnation ",
                                                 request.incarnation(), " is not its newest"));
      }
      job = job_;
      SendMember(response.worker());
    }
  }
  if (!status.ok()) {
    reply(std::move(status));
    return;
  }
  LogInfo(request.task(), " joined (incarnation ", response.incarnation(), ")");
  if (job->sequencer() != nullptr) {
    job->sequencer()->Join(response.worker(), response.incarnation());
    response.set_position(job->sequencer()->position(response.worker()));
    response.set_clock(job->sequencer()->ClockOf(response.worker()));
  }
  if (job->hands_out_data()) *response.mutable_work() = ToProto(*job->sequencer()->WorkOf(response.worker()));
  AnswerWhenReplicated<v1::JoinResponse>(job, std::move(reply), std::move(response));
}

absl::Status Server::CheckSealed(const v1::JoinRequest& request, int worker) const {
  if (request.incarnation() == 0 ||
      net::SealHolds(job_->seal_key(), IncarnationFacts(job_->job(), worker, request.incarnation()),
                     request.incarnation_seal())) {
    return absl::OkStatus();
  }
  const int64_t drawn_in = GenerationOf(request.incarnation()), generation = job_->job().generation();
  if (drawn_in != generation) {  // the job was rolled back while the worker joined
    return absl::AbortedError(absl::StrCat(members_.NameOf(worker), "'s incarnation ", request.incarnation(),
                                           " is of generation ", drawn_in, ", and ", name(),
                                           " is at generation ", generation));
  }
  return absl::PermissionDeniedError(absl::StrCat(members_.NameOf(worker), " claims the incarnation ",
                                                  request.incarnation(),
                                                  ", which no server of this job has given it"));
}

absl::Status Server::CheckAvailable(const v1::JoinRequest& request, int worker) {
  const Duration silence = FromSeconds(job_->job().lease_seconds()) / 2;  // two heartbeats
  const Membership::Availability availability =
      members_.CheckAvailability(worker, request.process().id(), clock_.Now(), silence);
  if (availability == Membership::Availability::kFree) return absl::OkStatus();
  const Membership::Member& other = *members_.Find(worker);
  const std::string task = members_.NameOf(worker);
  if (availability == Membership::Availability::kUnclear) {
    return absl::UnavailableError(absl::StrCat(task, " was ", Describe(other.process),
                                               " until now: waiting for ", ToSeconds(silence),
                                               " s to see whether it is still alive"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(task, " is already running: ", Describe(other.process), " is alive, and this is ",
                   Describe(request.process()), "; give every task its own index (--task_index, TF_CONFIG)"));
}

std::string Server::TaskOf(int worker) const {
  MutexLock lock(mutex_);
  return members_.HasName(worker) ? members_.NameOf(worker) : "";
}

bool Server::elastic() const {
  MutexLock lock(mutex_);
  return job_ != nullptr && job_->job().elastic();
}

absl::Status Server::CheckIncarnationGiven(int worker, uint64_t incarnation) const {
  MutexLock lock(mutex_);
  const Membership::Member* const member = members_.Find(worker);
  if (member != nullptr && incarnation <= member->incarnation) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(name(), ": incarnation ", incarnation, " of ",
                                         members_.NameOf(worker), " has not joined"));
}

void Server::PushStreamBroke(int worker, uint64_t incarnation) {
  MutexLock lock(mutex_);
  members_.StreamBroke(worker, incarnation);
}

absl::StatusOr<int> Server::AdmitWorker(const v1::JoinRequest& request) {
  if (request.task().size() > kMaxTaskName) {
    return absl::InvalidArgumentError(
        absl::StrCat("a task's name cannot have ", request.task().size(), " bytes, at most ", kMaxTaskName));
  }
  const v1::Job& job = job_->job();
  int worker = request.worker();
  if (job.elastic() && worker == -1) worker = members_.NumberOf(request.task(), job_->most_workers());
  if (worker < 0 || worker >= job_->most_workers()) {
    return absl::InvalidArgumentError(absl::StrCat(request.task(), " is not among the ",
                                                   Counted(job_->most_workers(), "worker"), " of the job"));
  }
  const bool full = job.max_workers() > 0 && members_.TakenExcept(worker) >= job.max_workers();
  if (full && request.incarnation() == 0 && worker != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(request.task(), ": the job already has its ",
                                                     Counted(job.max_workers(), "worker"),
                                                     " (--max_workers)"));
  }
  if (job.elastic()) members_.SetName(worker, request.task());
  return worker;
}

std::string Server::WaitingFor(Sequencer& sequencer) const {
  std::vector<std::string> missing;
  for (int worker : sequencer.WaitingFor()) missing.push_back(members_.NameOf(worker));
  for (int server : sequencer.MissingServers()) missing.push_back(absl::StrCat("ps/", server));
  return absl::StrJoin(missing, ", ");
}

void Server::Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply) {
  v1::HeartbeatResponse response;
  response.set_clock_unix_nanos(TraceClock());
  absl::Status status;
  {
    MutexLock lock(mutex_);
    // Workers that are no longer members must also learn that the job has finished.
    if (state_ == v1::STATE_FINISHED) {
      response.set_state(state_);
    } else if (shut_down_) {
      status = absl::UnavailableError(absl::StrCat(name(), " is stopping"));
    } else if (status = CheckServes(); !status.ok()) {
    } else if (job_ == nullptr ||
               !members_.Heartbeat(request.worker(), request.incarnation(), request.step(), clock_.Now())) {
      const Membership::Member* const member = members_.Find(request.worker());
      const bool ousted = member != nullptr && member->incarnation > request.incarnation();
      status = absl::AbortedError(absl::StrCat(
          name(), ": incarnation ", request.incarnation(), " of ", members_.NameOf(request.worker()),
          " is not a member of the job",
          ousted ? absl::StrCat(" since ", Describe(member->process), " has joined in its place") : ""));
    } else {
      if (request.has_report() && request.report().device().size() <= kMaxDeviceName) {
        reports_[request.worker()] = request.report();
      }
      response.set_state(state_);
      response.set_failure(std::string(failure_.message()));
      response.set_failure_code(static_cast<int>(failure_.code()));
      response.set_version(job_->shard().store().current().version);
      response.set_server_incarnation(incarnation_);
      if (job_->sequencer() != nullptr) response.set_waiting_for(WaitingFor(*job_->sequencer()));
    }
  }
  if (status.ok()) {
    reply(std::move(response));
  } else {
    reply(std::move(status));
  }
}

void Server::Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply) {
  std::shared_ptr<ActiveJob> job;
  std::string task;
  absl::Status serves;
  Calls calls;
  {
    MutexLock lock(mutex_);
    serves = CheckServes();
    if (serves.ok() && job_ != nullptr && members_.Leave(request.worker(), request.incarnation())) {
      job = job_;
      task = members_.NameOf(request.worker());
    }
    CollectWaiters(clock_.Now(), calls);
  }
  for (auto& call : calls) call();
  if (!serves.ok()) {
    reply(std::move(serves));
    return;
  }
  if (job != nullptr) {
    LogInfo(task, " left", request.message().empty() ? "" : ": ", request.message());
    if (job->sequencer() != nullptr) job->sequencer()->Leave(request.worker(), request.incarnation());
    {
      MutexLock lock(mutex_);
      if (job_ == job) SendMember(request.worker());  // the backup is informed last, as in Tick()
    }
    if (request.reason() == v1::LEAVE_REASON_FAILED) {
      Fail(absl::InternalError(absl::StrCat(task, " failed: ", request.message())));
    }
  }
  AnswerWhenReplicated<v1::LeaveResponse>(job, std::move(reply), v1::LeaveResponse());
}

void Server::Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (shut_down_) {
      calls.push_back([&reply] { reply(absl::UnavailableError("the server is stopping")); });
    } else if (const absl::Status serves = CheckServes(); !serves.ok()) {
      calls.push_back([&reply, serves] { reply(serves); });
    } else if (state_ == v1::STATE_FAILED) {
      calls.push_back([&reply, failure = failure_] { reply(failure); });
    } else if (waiters_.full()) {
      calls.push_back([&reply] {
        reply(
            absl::ResourceExhaustedError(absl::StrCat(WaitList::kMaxWaiting, " calls of Wait are waiting")));
      });
    } else {
      if (request.condition() == v1::CONDITION_WORK) reply = AnsweredWhenReplicated(std::move(reply));
      waiters_.Add(
          request, clock_.Now(), std::move(reply),
          [this](const v1::WaitRequest& asked, v1::WaitResponse* response)
              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Holds(asked, response); },
          calls);
    }
  }
  for (auto& call : calls) call();
}

bool Server::Holds(const v1::WaitRequest& request, v1::WaitResponse* response) const {
  std::string* const missing = response->mutable_missing();
  switch (request.condition()) {
    case v1::CONDITION_READY:
      *missing = state_ == v1::STATE_EMPTY ? "the chief has not declared the job"
                 : !initialised_           ? "the chief has not written the variables"
                                 : absl::StrCat("the backup on ", job_->backup_name(), " is not in sync yet");
      return state_ == v1::STATE_READY || state_ == v1::STATE_FINISHED;
    case v1::CONDITION_ALL_OTHERS_LEFT:
      if (state_ == v1::STATE_EMPTY) {  // former members joined an earlier process of this server
        *missing = "the job: this server has none";
        return false;
      }
      return members_.AllOthersLeft(request.worker(), missing);
    case v1::CONDITION_WORK:
      return HasWork(request, response);
    case v1::CONDITION_OVER:
      *missing = "the chief";
      return state_ == v1::STATE_FINISHED;
    default:
      *missing = absl::StrCat("unknown condition ", static_cast<int>(request.condition()));
      return false;
  }
}

bool Server::HasWork(const v1::WaitRequest& request, v1::WaitResponse* response) const {
  if (job_ == nullptr || !job_->hands_out_data()) {
    response->set_missing(absl::StrCat(name(), " does not assign data"));
    return false;
  }
  const Work work = *job_->sequencer()->WorkOf(request.worker());
  *response->mutable_work() = ToProto(work);
  const int least = std::max(1, job_->job().min_workers());
  response->set_missing(work.members < least
                            ? absl::StrCat("workers: ", work.members, " of at least ", least, " have joined")
                            : std::string("work that others have not finished yet"));
  return work.over || !work.work_items.empty();
}

void Server::CollectWaiters(TimePoint now, Calls& calls) {
  if (state_ == v1::STATE_FAILED) {
    waiters_.Fail(failure_, calls);
    return;
  }
  waiters_.Collect(
      now,
      [this](const v1::WaitRequest& request, v1::WaitResponse* response)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Holds(request, response); },
      calls);
}

std::vector<Membership::Expired> Server::CollectExpired(TimePoint now, std::vector<std::string>& reasons) {
  const v1::Job& job = job_->job();
  std::vector<Membership::Expired> expired = members_.ExpireOlderThan(now - FromSeconds(job.lease_seconds()));
  for (const auto& gone : expired) {
    reasons.push_back(
        absl::StrCat(members_.NameOf(gone.worker), " sent no heartbeat for ", job.lease_seconds(), " s"));
  }
  const bool rolled_back = job.generation() > 0 && job.has_resumed();
  if (rolled_back && state_ == v1::STATE_READY && now - ready_at_ > kReturn) {
    for (const auto& gone : members_.ExpireAbsent()) {
      reasons.push_back(
          absl::StrCat(members_.NameOf(gone.worker), " did not rejoin within ", kReturn.count(), " s"));
      expired.push_back(gone);
    }
  }
  return expired;
}

}  // namespace cairn::ps

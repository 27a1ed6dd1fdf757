#include "ps/job/server.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/core/log.h"
#include "common/flags/flags.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/process_usage.h"
#include "ps/job/job_description.h"
#include "ps/log/config_change.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {

Server::Server(Options options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      started_(clock.Now()),
      hosted_(HostOfJobs(), options_.incarnation, clock) {}

ActiveJob::Host Server::HostOfJobs() {
  return {.index = options_.index,
          .connect_to_leader = options_.connect_to_leader,
          .memory_limit = options_.memory_limit,
          .thread_pool = options_.thread_pool,
          .faults = options_.faults,
          .metrics = &metrics_,
          .trace = options_.trace,
          .tables = options_.tables,
          .host_index = options_.host_index < 0 ? options_.index : options_.host_index,
          .connect_to_backup = options_.connect_to_backup,
          .backups_clock = options_.replicates_by_calls ? &clock_ : nullptr};
}

int64_t Server::TraceClock() const {
  return options_.trace == nullptr ? 0 : options_.trace->UnixNanos(std::chrono::steady_clock::now());
}

absl::Status Server::CheckHandshake(const v1::ConnectRequest& request) const {
  if (request.protocol() != net::kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(name(), " speaks protocol ", net::kProtocolVersion,
                                                      ", ", request.client(), " speaks ",
                                                      request.protocol()));
  }
  if (request.server() != options_.index) {
    return absl::FailedPreconditionError(absl::StrCat("this is ", name(), ", but ", request.client(),
                                                      " expects ps/", request.server(),
                                                      ": their cluster configurations differ"));
  }
  if (request.cluster_hash() != 0 && options_.cluster_hash != 0 &&
      request.cluster_hash() != options_.cluster_hash) {
    return absl::FailedPreconditionError(
        absl::StrCat(name(), " belongs to another cluster than ", request.client(),
                     ": the hash of the servers' addresses is ", absl::Hex(options_.cluster_hash),
                     " here and ", absl::Hex(request.cluster_hash()), " there"));
  }
  return absl::OkStatus();
}

void Server::Connect(const v1::ConnectRequest& request, Reply<v1::ConnectResponse> reply) {
  if (absl::Status refused = CheckHandshake(request); !refused.ok()) {
    reply(std::move(refused));
    return;
  }
  v1::ConnectResponse response;
  response.set_protocol(net::kProtocolVersion);
  *response.mutable_data_endpoint() = net::ToProto(options_.data_endpoint);
  response.set_clock_unix_nanos(TraceClock());
  const std::shared_ptr<ActiveJob> job = hosted_.Connect(request, response);
  if (job != nullptr) Describe(*job, response);
  reply(std::move(response));
}

void Server::Create(const v1::CreateRequest& request, Reply<v1::CreateResponse> reply) {
  const absl::StatusOr<uint64_t> layout = hosted_.Create(request);
  if (!layout.ok()) {
    reply(Annotate(layout.status(), name()));
    return;
  }
  v1::CreateResponse response;
  response.set_layout(*layout);
  reply(std::move(response));
}

void Server::Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply) {
  hosted_.Wait(request, std::move(reply));
}

void Server::Finish(const v1::FinishRequest& request, Reply<v1::FinishResponse> reply) {
  hosted_.Finish(request);
  reply(v1::FinishResponse());
}

void Server::Promote(const v1::PromoteRequest& request, Reply<v1::PromoteResponse> reply) {
  const absl::StatusOr<int64_t> epoch = hosted_.Promote(request);
  if (!epoch.ok()) {
    reply(epoch.status());
    return;
  }
  v1::PromoteResponse response;
  response.set_epoch(*epoch);
  reply(std::move(response));
}

void Server::Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply) {
  const auto ready = hosted_.ReadyJob();
  absl::StatusOr<v1::JoinResponse> response =
      ready.ok() ? (*ready)->members().Join(request, clock_.Now()) : ready.status();
  if (!response.ok()) {
    reply(response.status());
    return;
  }
  LogInfo(request.task(), " joined (incarnation ", response->incarnation(), ")");
  ActiveJob& job = **ready;
  const int worker = response->worker();
  if (job.sequencer() != nullptr) {
    job.sequencer()->Join(worker, response->incarnation());
    response->set_position(job.sequencer()->position(worker));
    response->set_clock(job.sequencer()->ClockOf(worker));
  }
  if (job.hands_out_data()) *response->mutable_work() = ToProto(*job.sequencer()->WorkOf(worker));
  AnswerWhenReplicated<v1::JoinResponse>(*ready, std::move(reply), std::move(response));
}

void Server::BatchMean(const v1::BatchMeanRequest& request, Reply<v1::BatchMeanResponse> reply) {
  if (options_.faults != nullptr) options_.faults->Pass("mean");
  hosted_.BatchMean(request, std::move(reply));
}

void Server::Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply) {
  const HostedJob::View view = hosted_.view();
  v1::HeartbeatResponse response;
  response.set_clock_unix_nanos(TraceClock());
  response.set_state(view.state);
  // Workers that are no longer members must also learn that the job has finished.
  if (view.state == v1::STATE_FINISHED) {
    reply(std::move(response));
    return;
  }
  absl::Status status = view.serves;
  if (view.shut_down) status = absl::UnavailableError(absl::StrCat(name(), " is stopping"));
  if (status.ok() && view.job == nullptr) {
    status = absl::AbortedError(absl::StrCat(name(), ": incarnation ", request.incarnation(),
                                             " of an unknown worker ", request.worker(),
                                             " is not a member of the job"));
  }
  if (status.ok()) status = view.job->members().Heartbeat(request, clock_.Now());
  if (!status.ok()) {
    reply(std::move(status));
    return;
  }
  response.set_failure(std::string(view.failure.message()));
  response.set_failure_code(static_cast<int>(view.failure.code()));
  response.set_version(view.job->shard().store().current().version);
  response.set_server_incarnation(view.incarnation);
  response.set_waiting_for(absl::StrJoin(WaitingFor(*view.job), ", "));
  reply(std::move(response));
}

void Server::Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply) {
  const HostedJob::View view = hosted_.view();
  if (!view.serves.ok()) {
    reply(view.serves);
    return;
  }
  if (view.job == nullptr || !view.job->members().Leave(request.worker(), request.incarnation())) {
    reply(v1::LeaveResponse());  // it was not a member, or the call is repeated
    return;
  }
  hosted_.AnswerWaiting();
  const std::string task = view.job->members().NameOf(request.worker());
  LogInfo(task, " left", request.message().empty() ? "" : ": ", request.message());
  if (view.job->sequencer() != nullptr) {
    view.job->sequencer()->Leave(request.worker(), request.incarnation());
  }
  view.job->members().SendToBackup(request.worker());
  if (request.reason() == v1::LEAVE_REASON_FAILED) {
    hosted_.Fail(absl::InternalError(absl::StrCat(task, " failed: ", request.message())), view.job.get());
  }
  AnswerWhenReplicated<v1::LeaveResponse>(view.job, std::move(reply), v1::LeaveResponse());
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::SequencedJob() const {
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<ActiveJob> job, hosted_.ReadyJob());
  if (job->sequencer() != nullptr) return job;
  return absl::FailedPreconditionError(absl::StrCat(name(), " does not sequence this job"));
}

void Server::PlaceMarker(const v1::PlaceMarkerRequest& request, Reply<v1::PlaceMarkerResponse> reply) {
  const auto job = SequencedJob();
  if (!job.ok()) {
    reply(job.status());
    return;
  }
  if (request.token().size() > kMaxMarkerLength) {
    reply(absl::InvalidArgumentError(absl::StrCat("a marker's name cannot have ", request.token().size(),
                                                  " bytes, at most ", kMaxMarkerLength)));
    return;
  }
  const auto progress =
      (*job)->sequencer()->WriteMarker({.token = request.token(), .snapshot = request.snapshot()});
  if (!progress.ok()) {
    reply(Annotate(progress.status(), name()));
    return;
  }
  v1::PlaceMarkerResponse response;
  if (request.snapshot()) *response.mutable_progress() = ProgressOf(**job, *progress);
  AnswerWhenReplicated<v1::PlaceMarkerResponse>(*job, std::move(reply), std::move(response));
}

void Server::ChangeConfig(const v1::ChangeConfigRequest& request, Reply<v1::ChangeConfigResponse> reply) {
  const auto job = SequencedJob();
  absl::Status status = job.status();
  if (status.ok()) status = CheckConfigChange(request.config_change(), (*job)->job().optimizer());
  if (status.ok() && request.config_change().groups_size() > 0) {
    status = absl::InvalidArgumentError("settings of groups of variables come with the chief's push");
  }
  if (status.ok()) {
    status = (*job)->sequencer()->ChangeConfig(request.incarnation(), request.number(),
                                               ConfigChangeOf(request.config_change()));
  }
  if (status.ok()) {
    AnswerWhenReplicated<v1::ChangeConfigResponse>(*job, std::move(reply), v1::ChangeConfigResponse());
  } else {
    reply(Annotate(status, name()));
  }
}

std::string Server::TaskOf(int worker) const {
  const std::shared_ptr<ActiveJob> job = hosted_.job();
  return job == nullptr ? "" : job->members().TaskOf(worker);
}

bool Server::elastic() const {
  const std::shared_ptr<ActiveJob> job = hosted_.job();
  return job != nullptr && job->job().elastic();
}

absl::Status Server::CheckIncarnationGiven(int worker, uint64_t incarnation) const {
  if (const auto job = hosted_.job()) return job->members().CheckIncarnationGiven(worker, incarnation);
  return absl::AbortedError(absl::StrCat(name(), ": incarnation ", incarnation, " of an unknown worker ",
                                         worker, " has not joined"));
}

void Server::PushStreamBroke(int worker, uint64_t incarnation) {
  if (const auto job = hosted_.job()) job->members().StreamBroke(worker, incarnation);
}

v1::ServerStatus Server::Status() const {
  const HostedJob::View view = hosted_.view();
  v1::ServerStatus status;
  status.set_task(name());
  status.set_program_version(std::string(Version()));
  status.set_protocol(net::kProtocolVersion);
  status.set_cluster_hash(options_.cluster_hash);
  status.set_incarnation(options_.incarnation);
  status.set_unix_seconds(UnixSeconds());
  status.set_memory_limit_bytes(options_.memory_limit);
  status.set_resident_bytes(UsageOfThisProcess().resident_bytes);
  status.set_received_bytes(metrics_.received_bytes.value());
  status.set_sent_bytes(metrics_.sent_bytes.value());
  status.set_malformed_chunks(metrics_.malformed_chunks.value());
  const TimePoint now = clock_.Now();
  status.set_uptime_seconds(ToSeconds(now - started_));
  status.set_state(view.state);
  status.set_failure(std::string(view.failure.message()));
  status.mutable_queues()->set_waiting_calls(static_cast<int64_t>(view.waiting_calls));
  if (view.job == nullptr) return status;
  view.job->members().Describe(now, status);
  for (const auto& [worker, late] : metrics_.lateness()) {
    if (worker >= status.members_size()) continue;
    status.mutable_members(worker)->set_times_last(late.times_last);
    status.mutable_members(worker)->set_late_seconds(late.seconds);
  }
  if (view.state == v1::STATE_READY) {
    for (std::string& name : WaitingFor(*view.job)) status.add_waiting_for(std::move(name));
  }
  Describe(*view.job, status);
  return status;
}

void Server::Tick() {
  const TimePoint now = clock_.Now();
  const HostedJob::View view = hosted_.view();
  // On a backup, the job is left alone: the primary checks leases and measurements.
  const std::shared_ptr<ActiveJob> job = view.state == v1::STATE_BACKUP ? nullptr : view.job;
  std::vector<JobMembers::Lost> lost;
  if (job != nullptr && job->job().mode() != v1::MODE_VARIABLES) {
    lost = job->members().Expire(now, view.ready_at);
  }
  hosted_.AnswerWaiting();
  hosted_.TickReplication(job);
  for (const auto& [worker, incarnation, reason] : lost) {
    const bool wait = job->job().wait_for_return();
    LogWarning(reason, wait ? ": the job waits for its return" : ": it leaves the job");
    if (job->sequencer() != nullptr && !wait) job->sequencer()->Leave(worker, incarnation);
    job->members().SendToBackup(worker);
  }
  if (job == nullptr) return;
  absl::Status failure = job->shard().failure();
  if (job->sequencer() != nullptr) failure.Update(job->sequencer()->CheckMeasuring(now));
  if (!failure.ok()) hosted_.Fail(failure, job.get());
}

void Server::KeepUpBackups() {
  const std::shared_ptr<ActiveJob> job = hosted_.job();
  if (job != nullptr && job->replicator() != nullptr) job->replicator()->Step();
}

void Server::WokeUp() {
  const std::shared_ptr<ActiveJob> job = hosted_.job();
  if (job == nullptr) return;
  job->members().HearAll(clock_.Now());
  if (job->sequencer() != nullptr) job->sequencer()->WokeUp();
}

}  // namespace cairn::ps

#include "ps/job/server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/seal.h"
#include "ps/job/declaration.h"
#include "ps/job/incarnation.h"
#include "ps/job/progress_proto.h"
#include "ps/log/config_change.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

// How long the server of a failed job stays alive to notify its clients.
constexpr auto kFailureLinger = std::chrono::seconds(10);

// The facts that the seal of an epoch covers.
std::vector<std::string> EpochFacts(uint64_t incarnation, int64_t epoch) {
  return {"epoch", absl::StrCat(incarnation), absl::StrCat(epoch)};
}

}  // namespace

Server::Server(Options options, const Clock& clock)
    // Layouts of different processes differ, so requests meant for an earlier process are refused.
    : options_(std::move(options)),
      clock_(clock),
      started_(clock.Now()),
      last_layout_(options_.incarnation),
      incarnation_(options_.incarnation) {}

Server::~Server() {
  Shutdown();
}

int64_t Server::TraceClock() const {
  return options_.trace == nullptr ? 0 : options_.trace->UnixNanos(std::chrono::steady_clock::now());
}

void Server::Connect(const v1::ConnectRequest& request, Reply<v1::ConnectResponse> reply) {
  if (request.protocol() != net::kProtocolVersion) {
    reply(absl::FailedPreconditionError(absl::StrCat(name(), " speaks protocol ", net::kProtocolVersion, ", ",
                                                     request.client(), " speaks ", request.protocol())));
    return;
  }
  if (request.server() != options_.index) {
    reply(absl::FailedPreconditionError(absl::StrCat("this is ", name(), ", but ", request.client(),
                                                     " expects ps/", request.server(),
                                                     ": their cluster configurations differ")));
    return;
  }
  if (request.cluster_hash() != 0 && options_.cluster_hash != 0 &&
      request.cluster_hash() != options_.cluster_hash) {
    reply(absl::FailedPreconditionError(
        absl::StrCat(name(), " belongs to another cluster than ", request.client(),
                     ": the hash of the servers' addresses is ", absl::Hex(options_.cluster_hash),
                     " here and ", absl::Hex(request.cluster_hash()), " there")));
    return;
  }
  v1::ConnectResponse response;
  response.set_protocol(net::kProtocolVersion);
  *response.mutable_data_endpoint() = net::ToProto(options_.data_endpoint);
  response.set_clock_unix_nanos(TraceClock());
  std::shared_ptr<ActiveJob> job;
  bool outdated;
  {
    MutexLock lock(mutex_);
    outdated =
        job_ != nullptr && state_ != v1::STATE_BACKUP && request.incarnation() == incarnation_ &&
        request.epoch() > epoch_ &&
        net::SealHolds(job_->seal_key(), EpochFacts(incarnation_, request.epoch()), request.epoch_seal());
  }
  if (outdated)
    Drop(absl::StrCat(request.client(), " reports that a backup has been promoted in place of ", name()));
  {
    MutexLock lock(mutex_);
    response.set_state(state_);
    response.set_incarnation(incarnation_);
    if (incarnation_ != options_.incarnation) response.set_process(options_.incarnation);
    response.set_epoch(epoch_);
    if (job_ != nullptr && epoch_ > 0) {
      response.set_epoch_seal(net::SealOf(job_->seal_key(), EpochFacts(incarnation_, epoch_)));
    }
    response.set_failure(std::string(failure_.message()));
    response.set_failure_code(static_cast<int>(failure_.code()));
    job = job_;
  }
  if (job != nullptr) {
    *response.mutable_job() = job->job();
    response.set_layout(job->layout());
    for (const net::Slice& slice : job->shard().store().slices()) *response.add_slices() = slice.ToProto();
    for (const std::string& slot : job->shard().slot_names()) response.add_slots(slot);
    response.set_version(job->shard().store().current().version);
    response.set_learning_rate(job->shard().store().learning_rate());
    response.set_sequences(job->sequencer() != nullptr);
    *response.mutable_counters() =
        CountersOf(*job, job->sequencer() == nullptr ? UpdateCounters() : job->sequencer()->counters());
    if (job->job().dynamic_sharding() && job->sequencer() != nullptr) {
      *response.mutable_data() = ToProto(*job->sequencer()->DataPosition(), job->job(), options_.index);
    }
  }
  reply(std::move(response));
}

void Server::Create(const v1::CreateRequest& request, Reply<v1::CreateResponse> reply) {
  auto slices = ReadSlices(request);
  if (!slices.ok()) {
    reply(Annotate(slices.status(), name()));
    return;
  }
  std::shared_ptr<ActiveJob> replaced;  // destroyed outside the lock
  absl::Status status;
  v1::CreateResponse response;
  std::shared_ptr<ReplicationSink> replicated;  // the stream of a backup that is replaced
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (shut_down_) {
      status = absl::UnavailableError("the server is stopping");
    } else if (state_ == v1::STATE_READY && job_->job().mode() == v1::MODE_VARIABLES &&
               request.job().mode() == v1::MODE_VARIABLES) {
      replaced = job_;
      status = AddVariables(request, *std::move(slices));
    } else if (status = CheckReplaceable(request.job()); status.ok()) {
      const bool variables_only = request.job().mode() == v1::MODE_VARIABLES;
      // A backup has the incarnation of its primary. The new job needs another incarnation, because clients
      // of that primary would take a server with the same one for an outdated primary.
      const bool was_backup = state_ == v1::STATE_BACKUP;
      const uint64_t incarnation = was_backup ? options_.incarnation + drops_ + 1 : incarnation_;
      ActiveJob::Host host = HostFor(incarnation);
      host.seal_key = request.seal_key();
      auto job = ActiveJob::Create(request.job(), variables_only ? std::vector<net::Slice>() : *slices,
                                   last_layout_ + 1, host);
      status = job.status();
      if (job.ok()) {
        ++last_layout_;
        replaced = std::exchange(job_, *std::move(job));
        if (variables_only) status = AddVariables(request, *std::move(slices));
        if (status.ok()) {
          members_ = Membership({job_->job().workers().begin(), job_->job().workers().end()},
                                IncarnationsBefore(job_->job().generation()), job_->job().elastic());
          state_ = variables_only ? v1::STATE_READY : v1::STATE_INITIALISING;
          initialised_ = false;
          incarnation_ = incarnation;
          if (was_backup) ++drops_;
          if (backup_.sink != nullptr) replicated = backup_.sink;
          backup_ = {};
          CollectWaiters(clock_.Now(), calls);
        } else {
          job_.swap(replaced);
        }
      }
    }
    if (status.ok()) response.set_layout(job_->layout());
  }
  for (auto& call : calls) call();
  if (replicated != nullptr)
    replicated->Close(absl::FailedPreconditionError("the job is being created again"));
  // Followers whose job was created earlier than this server's are in the same run: they find the new
  // sequencer.
  if (status.ok() && replaced != nullptr && replaced->job().mode() != v1::MODE_VARIABLES) {
    Retire(std::move(replaced),
           absl::AbortedError(absl::StrCat("the variables of ", name(), " have been rolled back")));
  }
  if (status.ok()) {
    reply(std::move(response));
  } else {
    reply(Annotate(status, name()));
  }
}

absl::Status Server::CheckReplaceable(const v1::Job& job) const {
  if (state_ == v1::STATE_FINISHED) return absl::FailedPreconditionError("training is over");
  if (state_ == v1::STATE_EMPTY) return absl::OkStatus();
  const bool same_run = job_->job().run_id() == job.run_id();
  if (same_run && job.generation() < job_->job().generation()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot start generation ", job.generation(),
                                                      " of job ", job.run_id(), ": generation ",
                                                      job_->job().generation(), " is under way"));
  }
  const bool goes_on = same_run && job.generation() > job_->job().generation();
  if (state_ == v1::STATE_BACKUP) {
    const bool served = backup_.sink != nullptr && clock_.Now() - backup_.heard < kSilent;
    return goes_on || (!same_run && !served) ? absl::OkStatus() : CheckServes();
  }
  if (state_ == v1::STATE_INITIALISING || (state_ == v1::STATE_READY && goes_on)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job_->job().run_id(), " is under way, at version ",
                   job_->shard().store().current().version, "; `cairn job cancel` ends it"));
}

absl::Status Server::AddVariables(const v1::CreateRequest& request, std::vector<net::Slice> added) {
  CAIRN_ASSIGN_OR_RETURN(job_, WithVariables(*job_, request, std::move(added), last_layout_ + 1));
  ++last_layout_;
  return absl::OkStatus();
}

absl::Status Server::CheckReady() const {
  if (shut_down_) return absl::UnavailableError(absl::StrCat(name(), " is stopping"));
  if (state_ == v1::STATE_FAILED) return failure_;
  CAIRN_RETURN_IF_ERROR(CheckServes());
  if (job_ == nullptr || state_ == v1::STATE_INITIALISING) {
    return absl::AbortedError(absl::StrCat(name(), " has no variables yet"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::SequencedJob() const {
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(CheckReady());
  if (job_->sequencer() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(name(), " does not sequence this job"));
  }
  return job_;
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
  if (request.snapshot()) *response.mutable_progress() = ProgressOf(**job, *progress, options_.index);
  AnswerWhenReplicated<v1::PlaceMarkerResponse>(*job, std::move(reply), std::move(response));
}

void Server::ChangeConfig(const v1::ChangeConfigRequest& request, Reply<v1::ChangeConfigResponse> reply) {
  const auto job = SequencedJob();
  absl::Status status = job.status();
  if (status.ok()) status = CheckConfigChange(request.config_change(), (*job)->job().optimizer());
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

void Server::Finish(const v1::FinishRequest& request, Reply<v1::FinishResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    // A job may have failed already because a worker learned of the end from another server.
    const bool has_job =
        state_ == v1::STATE_INITIALISING || state_ == v1::STATE_READY || state_ == v1::STATE_FAILED;
    if (has_job && !request.cancelled_by().empty()) {
      cancelled_ = true;
    } else if (state_ != v1::STATE_FAILED) {
      state_ = v1::STATE_FINISHED;
    }
    CollectWaiters(clock_.Now(), calls);
  }
  for (auto& call : calls) call();
  if (!request.cancelled_by().empty()) {  // has no effect unless a job is active
    Fail(absl::InternalError(
        absl::StrCat("the job was cancelled by ", request.cancelled_by(), " (`cairn job cancel`)")));
  }
  reply(v1::FinishResponse());
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::JobForLayout(uint64_t layout) const {
  MutexLock lock(mutex_);
  if (shut_down_) return absl::UnavailableError(absl::StrCat(name(), " is stopping"));
  if (state_ == v1::STATE_FAILED) return failure_;
  CAIRN_RETURN_IF_ERROR(CheckServes());
  if (job_ == nullptr) {
    return absl::AbortedError(absl::StrCat(name(), " has been restarted and has no variables: layout ",
                                           layout, " is not known here"));
  }
  if (job_->layout() != layout) {
    return absl::AbortedError(absl::StrCat("the variables of ", name(), " have changed: layout ", layout,
                                           " is now ", job_->layout()));
  }
  return job_;
}

void Server::OnInitialised(uint64_t layout) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (state_ != v1::STATE_INITIALISING || job_->layout() != layout) return;
    // TickBackups() makes the job ready when its backup is in sync.
    if (job_->replicator() != nullptr) {
      if (!std::exchange(initialised_, true)) job_->StartReplicating();
      return;
    }
    state_ = v1::STATE_READY;
    ready_at_ = clock_.Now();
    CollectWaiters(ready_at_, calls);
  }
  for (auto& call : calls) call();
}

bool Server::ready() const {
  MutexLock lock(mutex_);
  return state_ == v1::STATE_READY;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::JobToFollow(const std::string& run_id,
                                                               int64_t generation) const {
  MutexLock lock(mutex_);
  if (shut_down_ || job_ == nullptr || job_->job().run_id() != run_id ||
      job_->job().generation() != generation || job_->sequencer() == nullptr || state_ == v1::STATE_BACKUP) {
    return absl::UnavailableError(
        absl::StrCat(name(), " does not sequence generation ", generation, " of job ", run_id));
  }
  return job_;
}

void Server::Fail(absl::Status failure, const ActiveJob* of) {
  std::shared_ptr<ActiveJob> job;
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (of != nullptr && of != job_.get()) return;
    if (state_ == v1::STATE_FAILED || state_ == v1::STATE_FINISHED) return;
    if (cancelled_) {
      LogWarning(failure.message());
    } else {
      LogError("the job failed: ", failure.message());
    }
    state_ = v1::STATE_FAILED;
    failure_ = failure;
    failed_at_ = clock_.Now();
    job = job_;
    CollectWaiters(failed_at_, calls);
  }
  for (auto& call : calls) call();
  if (job != nullptr) job->shard().Fail(std::move(failure));
}

void Server::Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) {
  job->QuitReplicating();
  if (job->sequencer() != nullptr) job->sequencer()->End(why.message());
  job->shard().Fail(why);
  MutexLock lock(mutex_);
  retired_.push_back(std::move(job));
}

void Server::BuryRetired() {
  std::vector<std::shared_ptr<ActiveJob>> over;  // destroyed outside the lock
  MutexLock lock(mutex_);
  const auto first =
      std::partition(retired_.begin(), retired_.end(), [](const auto& job) { return job.use_count() > 1; });
  over.assign(std::make_move_iterator(first), std::make_move_iterator(retired_.end()));
  retired_.erase(first, retired_.end());
}

void Server::Tick() {
  BuryRetired();
  const TimePoint now = clock_.Now();
  std::shared_ptr<ActiveJob> job;
  std::vector<Membership::Expired> expired;
  std::vector<std::string> reasons;  // [expired]
  Calls calls;
  {
    MutexLock lock(mutex_);
    job = job_;
    if (state_ == v1::STATE_BACKUP) {
      job = nullptr;  // the primary checks leases and measurements
    } else if (job != nullptr && job->job().mode() != v1::MODE_VARIABLES) {
      expired = CollectExpired(now, reasons);
    }
    CollectWaiters(now, calls);
  }
  for (auto& call : calls) call();
  TickBackups(now, job);
  for (size_t i = 0; i < expired.size(); ++i) {
    const bool wait = job->job().wait_for_return();
    LogWarning(reasons[i], wait ? ": the job waits for its return" : ": it leaves the job");
    if (job->sequencer() != nullptr && !wait) {
      job->sequencer()->Leave(expired[i].worker, expired[i].incarnation);
    }
    // The backup is informed last that a member has left. If this server fails before, the backup's own lease
    // check finds the member.
    MutexLock lock(mutex_);
    if (job_ == job) SendMember(expired[i].worker);
  }
  if (job != nullptr) {
    absl::Status failure = job->shard().failure();
    if (job->sequencer() != nullptr) failure.Update(job->sequencer()->CheckMeasuring(now));
    if (!failure.ok()) Fail(std::move(failure), job.get());
  }
}

std::optional<ExitCode> Server::ended() const {
  MutexLock lock(mutex_);
  if (state_ == v1::STATE_FINISHED) return ExitCode::kDone;
  if (state_ == v1::STATE_FAILED) {
    std::string missing;
    if (members_.AllOthersLeft(-1, &missing) || clock_.Now() - failed_at_ > kFailureLinger)
      return cancelled_ ? ExitCode::kDone : ExitCodeOf(failure_);
  }
  return std::nullopt;
}

void Server::Shutdown() {
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> replicated;
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (shut_down_) return;
    shut_down_ = true;
    job = job_;
    replicated = std::exchange(backup_.sink, nullptr);
    waiters_.Fail(absl::UnavailableError(absl::StrCat(name(), " is stopping")), calls);
  }
  for (auto& call : calls) call();
  if (replicated != nullptr) replicated->Close(absl::UnavailableError(absl::StrCat(name(), " is stopping")));
  if (job != nullptr) job->StopReplicating();
  // A follower may be another shard of this process, which ends after this one.
  if (job != nullptr && job->sequencer() != nullptr)
    job->sequencer()->End(absl::StrCat(name(), " is stopping"));
  if (job != nullptr) job->shard().Fail(absl::UnavailableError(absl::StrCat(name(), " is stopping")));
}

}  // namespace cairn::ps

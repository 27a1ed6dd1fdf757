#include "ps/job/hosted_job.h"

#include <utility>

#include "common/core/log.h"
#include "ps/job/declaration.h"

namespace cairn::ps {
namespace {

void Make(WaitList::Calls& calls) {
  for (auto& call : calls) call();
}

}  // namespace

HostedJob::HostedJob(ActiveJob::Host host, uint64_t process, const Clock& clock)
    : host_(std::move(host)),
      process_(process),
      clock_(clock),
      lifecycle_(shard(), this->host(), process),
      backup_(shard(), this->host()),
      waiting_(lifecycle_, shard()) {}

ActiveJob::Host HostedJob::HostFor(uint64_t incarnation, const std::string& seal_key) const {
  ActiveJob::Host host = host_;
  host.incarnation = incarnation;
  host.epoch = lifecycle_.epoch();
  host.seal_key = seal_key;
  return host;
}

HostedJob::View HostedJob::view() const {
  MutexLock lock(mutex_);
  return {.state = lifecycle_.state(),
          .failure = lifecycle_.failure(),
          .shut_down = lifecycle_.shut_down(),
          .serves = lifecycle_.CheckServes(),
          .incarnation = lifecycle_.incarnation(),
          .ready_at = lifecycle_.ready_at(),
          .waiting_calls = waiting_.size(),
          .job = lifecycle_.job()};
}

std::shared_ptr<ActiveJob> HostedJob::Connect(const v1::ConnectRequest& request,
                                              v1::ConnectResponse& response) {
  std::shared_ptr<ActiveJob> outdated;
  {
    MutexLock lock(mutex_);
    if (lifecycle_.IsOutdated(request)) outdated = lifecycle_.job();
  }
  if (outdated != nullptr) {
    Drop(*outdated,
         absl::StrCat(request.client(), " reports that a backup has been promoted in place of ", shard()));
  }
  MutexLock lock(mutex_);
  lifecycle_.Describe(response);
  return lifecycle_.job();
}

absl::StatusOr<uint64_t> HostedJob::Create(const v1::CreateRequest& request) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<net::Slice> slices, ReadSlices(request.slices()));
  std::shared_ptr<ActiveJob> replaced;   // destroyed outside the lock
  std::shared_ptr<ReplicationSink> fed;  // the stream of a backup that is replaced
  uint64_t layout;
  {
    MutexLock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<ActiveJob> job, MakeJob(request, std::move(slices)));
    layout = job->layout();
    replaced = lifecycle_.Create(std::move(job));
    fed = backup_.Reset();
  }
  AnswerWaiting();
  if (fed != nullptr) fed->Close(absl::FailedPreconditionError("the job is being created again"));
  // Followers whose job was created earlier than this server's are in the same run: they find the new
  // sequencer.
  if (replaced != nullptr && replaced->job().mode() != v1::MODE_VARIABLES) {
    retired_.Retire(std::move(replaced),
                    absl::AbortedError(absl::StrCat("the variables of ", shard(), " have been rolled back")));
  }
  return layout;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> HostedJob::MakeJob(const v1::CreateRequest& request,
                                                              std::vector<net::Slice> slices) {
  if (lifecycle_.shut_down()) return absl::UnavailableError("the server is stopping");
  const std::shared_ptr<ActiveJob>& current = lifecycle_.job();
  const bool variables_only = request.job().mode() == v1::MODE_VARIABLES;
  if (variables_only && lifecycle_.state() == v1::STATE_READY &&
      current->job().mode() == v1::MODE_VARIABLES) {
    return WithVariables(*current, request, std::move(slices), lifecycle_.DrawLayout());
  }
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckReplaceable(request.job(), backup_.primary_is_heard(clock_.Now())));
  const ActiveJob::Host host = HostFor(lifecycle_.NextIncarnation(), request.seal_key());
  if (!variables_only) {
    return ActiveJob::Create(request.job(), std::move(slices), lifecycle_.DrawLayout(), host);
  }
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<ActiveJob> empty,
                         ActiveJob::Create(request.job(), {}, lifecycle_.DrawLayout(), host));
  return WithVariables(*empty, request, std::move(slices), lifecycle_.DrawLayout());
}

void HostedJob::OnInitialised(uint64_t layout) {
  {
    MutexLock lock(mutex_);
    if (!lifecycle_.is_initialising(layout)) return;
    if (lifecycle_.job()->replicator() != nullptr) {  // TickReplication() makes the job ready
      if (lifecycle_.AwaitBackup()) lifecycle_.job()->StartReplicating();
      return;
    }
    lifecycle_.BecomeReady(clock_.Now());
  }
  AnswerWaiting();
}

void HostedJob::Finish(const v1::FinishRequest& request) {
  const std::string& operator_name = request.cancelled_by();
  bool cancelled;
  {
    MutexLock lock(mutex_);
    if (!operator_name.empty() && request.announce()) {
      lifecycle_.AnnounceCancel(clock_.Now());
      return;
    }
    cancelled = lifecycle_.Finish(!operator_name.empty());
  }
  AnswerWaiting();
  if (cancelled) {
    Fail(absl::InternalError(
        absl::StrCat("the job was cancelled by ", operator_name, " (`cairn job cancel`)")));
  }
}

void HostedJob::Fail(const absl::Status& failure, const ActiveJob* of) {
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    if (of != nullptr && of != lifecycle_.job().get()) return;
    if (!lifecycle_.Fail(failure, clock_.Now())) return;
    if (lifecycle_.WasCancelled()) {
      LogWarning(failure.message());
    } else {
      LogError("the job failed: ", failure.message());
    }
    job = lifecycle_.job();
  }
  AnswerWaiting();
  if (job != nullptr) job->shard().Fail(failure);
}

void HostedJob::Drop(const ActiveJob& of, const std::string& why) {
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> fed;
  {
    MutexLock lock(mutex_);
    if (lifecycle_.job().get() != &of) return;
    auto dropped = lifecycle_.Drop();
    if (!dropped.has_value()) return;
    job = *std::move(dropped);
    fed = backup_.Reset();
  }
  LogWarning("drops ", shard(), "'s shard: ", why);
  const absl::Status gone =
      absl::UnavailableError(absl::StrCat(shard(), "'s shard is not served here any more"));
  if (fed != nullptr) fed->Close(gone);
  if (job != nullptr) retired_.Retire(std::move(job), gone);
}

std::optional<ExitCode> HostedJob::ended() const {
  MutexLock lock(mutex_);
  std::string missing;
  const std::shared_ptr<ActiveJob>& job = lifecycle_.job();
  return lifecycle_.Ended(clock_.Now(), job == nullptr || job->members().AllOthersLeft(-1, &missing));
}

void HostedJob::Shutdown() {
  const absl::Status stopping = absl::UnavailableError(absl::StrCat(shard(), " is stopping"));
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> fed;
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (lifecycle_.shut_down()) return;
    lifecycle_.Shutdown();
    job = lifecycle_.job();
    fed = backup_.EndStream();
    waiting_.Fail(stopping, calls);
    batch_means_.Fail(stopping, calls);
  }
  Make(calls);
  if (fed != nullptr) fed->Close(stopping);
  if (job == nullptr) return;
  job->StopReplicating();
  // A follower may be another shard of this process, which ends after this one.
  if (job->sequencer() != nullptr) job->sequencer()->End(stopping.message());
  job->shard().Fail(stopping);
}

void HostedJob::Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (request.condition() == v1::CONDITION_WORK) {
      reply = [job = std::weak_ptr<ActiveJob>(lifecycle_.job()),
               reply = std::move(reply)](absl::StatusOr<v1::WaitResponse> response) mutable {
        AnswerWhenReplicated<v1::WaitResponse>(job.lock(), std::move(reply), std::move(response));
      };
    }
    waiting_.Add(request, clock_.Now(), std::move(reply), calls);
  }
  Make(calls);
}

void HostedJob::AnswerWaiting() {
  Calls calls;
  {
    MutexLock lock(mutex_);
    waiting_.Collect(clock_.Now(), calls);
    if (lifecycle_.state() == v1::STATE_FAILED) {
      batch_means_.Fail(lifecycle_.failure(), calls);
    } else {
      batch_means_.Collect(lifecycle_.job().get(), clock_.Now(), calls);
    }
  }
  Make(calls);
}

void HostedJob::BatchMean(const v1::BatchMeanRequest& request, Reply<v1::BatchMeanResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const absl::StatusOr<std::shared_ptr<ActiveJob>> job = lifecycle_.JobForLayout(request.layout());
    if (job.ok()) {
      batch_means_.Add(request, **job, clock_.Now(), std::move(reply), calls);
    } else {
      calls.push_back([reply = std::move(reply), refused = job.status()]() mutable { reply(refused); });
    }
  }
  Make(calls);
}

// --- Replication ---

absl::StatusOr<std::shared_ptr<ActiveJob>> HostedJob::OpenBackup(const v1::ReplicationOrigin& origin,
                                                                 std::shared_ptr<ReplicationSink> sink) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<net::Slice> slices, ReadSlices(origin.slices()));
  std::shared_ptr<ActiveJob> behind;
  {
    MutexLock lock(mutex_);
    if (lifecycle_.IsBehind(origin)) behind = lifecycle_.job();
  }
  if (behind != nullptr) Drop(*behind, absl::StrCat("a backup has been promoted in place of ", shard()));
  std::shared_ptr<ActiveJob> job, replaced;  // destroyed outside the lock
  std::shared_ptr<ReplicationSink> old;
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(lifecycle_.CheckMayBackUp(origin, backup_.epoch()));
    backup_.Spoil();  // in all cases, the caller starts over
    CAIRN_ASSIGN_OR_RETURN(job, ActiveJob::CreateCopy(origin.job(), std::move(slices), origin.layout(),
                                                      HostFor(origin.incarnation(), origin.seal_key())));
    old = backup_.EndStream();
    replaced = lifecycle_.BecomeBackup(job, origin.incarnation());
    backup_.Open(std::move(sink), origin.epoch(), clock_.Now());
  }
  if (old != nullptr) old->Close(absl::FailedPreconditionError("another stream feeds this backup now"));
  return job;
}

absl::Status HostedJob::OnReplicated(const ReplicationSink* sink, uint64_t number,
                                     const v1::ReplicationBody& body, const ReplicatedFloats& floats) {
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    if (!lifecycle_.is_backup()) {
      return absl::AbortedError(absl::StrCat(host(), " has been promoted in place of ", shard()));
    }
    if (!backup_.IsFedBy(sink)) {  // this stream is being closed
      return absl::CancelledError(
          absl::StrCat(host(), " has no backup of ", shard(), "'s shard on this stream any more"));
    }
    job = lifecycle_.job();
    CAIRN_RETURN_IF_ERROR(backup_.Restore(body, floats, *job, clock_.Now()));
    if (number != 0) backup_.Acknowledge(number);
  }
  job->shard().Flush();
  // If the primary has not failed but its backup has, the backup is inconsistent with the primary.
  if (const absl::Status failure = job->shard().failure(); !failure.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the backup of ", shard(), "'s shard failed: ", failure.message()));
  }
  return absl::OkStatus();
}

void HostedJob::BackupClosed(const ReplicationSink* sink, bool spoilt) {
  std::shared_ptr<ReplicationSink> closed;  // destroyed outside the lock
  MutexLock lock(mutex_);
  if (!lifecycle_.is_backup() || !backup_.IsFedBy(sink)) return;
  closed = backup_.EndStream();
  if (spoilt) backup_.Spoil();
}

bool HostedJob::backup_in_sync() const {
  MutexLock lock(mutex_);
  return lifecycle_.is_backup() && backup_.in_sync();
}

absl::StatusOr<int64_t> HostedJob::Promote(const v1::PromoteRequest& request) {
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> old;
  int64_t epoch;
  {
    MutexLock lock(mutex_);
    CAIRN_ASSIGN_OR_RETURN(epoch, PromoteLocked(request));
    old = backup_.Reset();
    job = lifecycle_.job();
  }
  AnswerWaiting();
  if (old != nullptr) {
    old->Close(absl::AbortedError(absl::StrCat("a backup has been promoted in place of ", shard())));
  }
  job->shard().Flush();
  return epoch;
}

absl::StatusOr<int64_t> HostedJob::PromoteLocked(const v1::PromoteRequest& request) {
  if (lifecycle_.shut_down()) return absl::UnavailableError(absl::StrCat(host(), " is stopping"));
  const std::shared_ptr<ActiveJob>& job = lifecycle_.job();
  const bool same =
      job != nullptr && (request.incarnation() == 0 || request.incarnation() == lifecycle_.incarnation());
  if (same && lifecycle_.state() == v1::STATE_READY) return lifecycle_.epoch();
  if (!same || !lifecycle_.is_backup() || !backup_.in_sync()) {
    return absl::AbortedError(
        absl::StrCat(host(), " has no backup of ", shard(), "'s shard that is in sync"));
  }
  const TimePoint now = clock_.Now();
  CAIRN_RETURN_IF_ERROR(backup_.CheckMayPromote(now));
  const int64_t epoch = backup_.epoch() + 1;
  CAIRN_RETURN_IF_ERROR(job->Promote(epoch));
  lifecycle_.Promote(epoch, now);
  job->members().HearAll(now + kSilent);  // the workers need time to find this server
  LogWarning(host(), " is promoted in place of ", shard(), ", at version ",
             job->shard().store().current().version);
  return epoch;
}

void HostedJob::TickReplication(const std::shared_ptr<ActiveJob>& job) {
  retired_.Bury();
  const TimePoint now = clock_.Now();
  std::string reason;
  {
    MutexLock lock(mutex_);
    if (lifecycle_.is_backup()) backup_.Beat(now);
    if (job == nullptr || job != lifecycle_.job() || job->replicator() == nullptr) return;
    if (lifecycle_.awaits_backup() && job->replicator()->was_in_sync()) {
      lifecycle_.BecomeReady(now);
    }
    reason = job->ReasonToDrop();
  }
  AnswerWaiting();
  if (reason.empty()) {
    job->ReportWaiting();
  } else {
    Drop(*job, reason);
  }
}

}  // namespace cairn::ps

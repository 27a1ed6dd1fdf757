// Replication of a server: the primary of a shard, and the backup in another process (server.h).
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "ps/job/declaration.h"
#include "ps/job/incarnation.h"
#include "ps/job/server.h"
#include "ps/log/follow_proto.h"
#include "ps/replication/shard_backup.h"

namespace cairn::ps {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(200);
// Limit on heartbeats without an echo: an echo of a heartbeat older than kRight does not extend the right.
constexpr size_t kMaxBeats = kRight / kBeat + 1;

std::string Milliseconds(Duration duration) {
  return absl::StrCat(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(), " ms");
}

void Save(const Membership::Entry& entry, v1::ReplicatedMember& member) {
  member.set_worker(entry.worker);
  member.set_incarnation(entry.incarnation);
  member.set_live(entry.live);
  member.set_step(entry.step);
  member.set_task(entry.task);
  *member.mutable_process() = entry.process;
}

}  // namespace

ActiveJob::Host Server::HostFor(uint64_t incarnation) {
  return {.index = options_.index,
          .connect_to_leader = options_.connect_to_leader,
          .memory_limit = options_.memory_limit,
          .thread_pool = options_.thread_pool,
          .faults = options_.faults,
          .metrics = &metrics_,
          .trace = options_.trace,
          .host_index = host_index(),
          .incarnation = incarnation,
          .epoch = epoch_,
          .connect_to_backup = options_.connect_to_backup,
          .capture_members = [this](Replicator& replicator) { CaptureMembers(replicator); },
          .backups_clock = options_.replicates_by_calls ? &clock_ : nullptr};
}

void Server::KeepUpBackups() {
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    job = job_;
  }
  if (job != nullptr && job->replicator() != nullptr) job->replicator()->Step();
}

absl::Status Server::CheckServes() const {
  if (state_ == v1::STATE_BACKUP) {
    return absl::UnavailableError(
        absl::StrCat("ps/", host_index(), " has the backup of ", name(), "'s shard, and does not serve it"));
  }
  if (job_ == nullptr && drops_ > 0) {
    return absl::UnavailableError(
        absl::StrCat("ps/", host_index(), " does not serve ", name(), "'s shard any more"));
  }
  return absl::OkStatus();
}

Reply<v1::WaitResponse> Server::AnsweredWhenReplicated(Reply<v1::WaitResponse> reply) const {
  if (job_ == nullptr || job_->replicator() == nullptr) return reply;
  return [job = std::weak_ptr<ActiveJob>(job_),
          reply = std::move(reply)](absl::StatusOr<v1::WaitResponse> response) mutable {
    AnswerWhenReplicated<v1::WaitResponse>(job.lock(), std::move(reply), std::move(response));
  };
}

void Server::SendMember(int worker) {
  if (job_ == nullptr || job_->replicator() == nullptr) return;
  for (const Membership::Entry& entry : members_.All()) {
    if (entry.worker != worker) continue;
    ReplicationItem item;
    Save(entry, *item.body.mutable_member());
    job_->replicator()->Send(Replicator::Component::kMembers, std::move(item));
  }
}

void Server::CaptureMembers(Replicator& replicator) {
  MutexLock lock(mutex_);
  ReplicationItem item;
  v1::ReplicatedMembers& members = *item.body.mutable_members();
  for (const Membership::Entry& entry : members_.All()) {
    Save(entry, *members.add_members());
  }
  replicator.SendState(Replicator::Component::kMembers, std::move(item));
}

bool Server::IsBehind(const v1::ReplicationOrigin& origin) const {
  MutexLock lock(mutex_);
  const bool serves = state_ == v1::STATE_READY || state_ == v1::STATE_INITIALISING;
  if (!serves || job_->job().run_id() != origin.job().run_id()) return false;
  return std::pair(job_->job().generation(), epoch_) < std::pair(origin.job().generation(), origin.epoch());
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::OpenBackup(const v1::ReplicationOrigin& origin,
                                                              std::shared_ptr<ReplicationSink> sink) {
  v1::CreateRequest declared;
  *declared.mutable_slices() = origin.slices();
  CAIRN_ASSIGN_OR_RETURN(std::vector<net::Slice> slices, ReadSlices(declared));
  if (IsBehind(origin)) Drop(absl::StrCat("a backup has been promoted in place of ", name()));
  std::shared_ptr<ActiveJob> replaced;  // destroyed outside the lock
  std::shared_ptr<ReplicationSink> old;
  MutexLock lock(mutex_);
  if (shut_down_) return absl::UnavailableError(absl::StrCat("ps/", host_index(), " is stopping"));
  const bool same_run = job_ != nullptr && job_->job().run_id() == origin.job().run_id();
  const bool is_backup = state_ == v1::STATE_BACKUP;
  const bool ended = state_ == v1::STATE_FINISHED || state_ == v1::STATE_FAILED;
  if (state_ != v1::STATE_EMPTY && !is_backup && (ended || !same_run)) {
    return absl::FailedPreconditionError(
        absl::StrCat("ps/", host_index(), " serves another job, or has ended"));
  }
  if (state_ != v1::STATE_EMPTY && !is_backup) {
    return absl::AbortedError(absl::StrCat("ps/", host_index(), " has been promoted in place of ", name()));
  }
  // This server was promoted in place of the caller. The caller does not know that, and lacks everything that
  // this server has answered since.
  if (dropped_.run_id == origin.job().run_id() && dropped_.epoch > origin.epoch() &&
      dropped_.generation >= origin.job().generation()) {
    return absl::AbortedError(absl::StrCat("ps/", host_index(), " has been promoted in place of ", name(),
                                           ", and has dropped the shard since"));
  }
  if (is_backup && same_run && backup_.epoch > origin.epoch() &&
      job_->job().generation() >= origin.job().generation()) {
    return absl::AbortedError(
        absl::StrCat("ps/", host_index(), " has the backup of the server promoted in place of ", name()));
  }
  backup_.in_sync = false;  // in all cases, the caller starts over
  ActiveJob::Host host = HostFor(origin.incarnation());
  host.seal_key = origin.seal_key();
  CAIRN_ASSIGN_OR_RETURN(auto job,
                         ActiveJob::CreateCopy(origin.job(), std::move(slices), origin.layout(), host));
  old = std::exchange(backup_.sink, nullptr);
  replaced = std::exchange(job_, job);
  state_ = v1::STATE_BACKUP;
  incarnation_ = origin.incarnation();
  members_ = Membership({job->job().workers().begin(), job->job().workers().end()},
                        IncarnationsBefore(job->job().generation()), job->job().elastic());
  backup_ = {.sink = std::move(sink), .epoch = origin.epoch(), .heard = clock_.Now()};
  if (old != nullptr) old->Close(absl::FailedPreconditionError("another stream feeds this backup now"));
  return job;
}

absl::Status Server::OnReplicated(const ReplicationSink* sink, uint64_t number,
                                  const v1::ReplicationBody& body,
                                  std::shared_ptr<const AlignedBuffer> floats) {
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    if (state_ != v1::STATE_BACKUP) {
      return absl::AbortedError(absl::StrCat("ps/", host_index(), " has been promoted in place of ", name()));
    }
    if (backup_.sink.get() != sink) {  // this stream is being closed
      return absl::CancelledError(absl::StrCat("ps/", host_index(), " has no backup of ", name(),
                                               "'s shard on this stream any more"));
    }
    CAIRN_RETURN_IF_ERROR(Restore(body, floats));
    job = job_;
    v1::ReplicationAck answer;
    answer.set_replicated(number);
    backup_.sink->Answer(answer);
  }
  job->shard().Flush();
  // If the primary has not failed but its backup has, the backup is inconsistent with the primary.
  if (const absl::Status failure = job->shard().failure(); !failure.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the backup of ", name(), "'s shard failed: ", failure.message()));
  }
  return absl::OkStatus();
}

absl::Status Server::Restore(const v1::ReplicationBody& body,
                             const std::shared_ptr<const AlignedBuffer>& floats) {
  const auto put = [this](const v1::ReplicatedMember& member)
                       ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    if (member.worker() < 0 || member.worker() >= job_->most_workers()) {
      return absl::InvalidArgumentError(absl::StrCat("a replicated member is worker ", member.worker(),
                                                     ", but the number of workers is ",
                                                     job_->most_workers()));
    }
    members_.Put({member.worker(), member.incarnation(), member.live(), member.step(), member.task(),
                  member.process()},
                 clock_.Now());
    return absl::OkStatus();
  };
  switch (body.what_case()) {
    case v1::ReplicationBody::kShard:
      CAIRN_RETURN_IF_ERROR(job_->shard().Restore(body.shard(), floats));
      backup_.has_shard = true;
      return absl::OkStatus();
    case v1::ReplicationBody::kSequencer:
      if (job_->sequencer() == nullptr) break;
      CAIRN_RETURN_IF_ERROR(Annotate(job_->sequencer()->Load(body.sequencer()), "replicated"));
      backup_.has_sequencer = true;
      return absl::OkStatus();
    case v1::ReplicationBody::kMembers:
      for (const v1::ReplicatedMember& member : body.members().members()) CAIRN_RETURN_IF_ERROR(put(member));
      return absl::OkStatus();
    case v1::ReplicationBody::kInSync:
      if (!backup_.has_shard || (job_->sequencer() != nullptr && !backup_.has_sequencer)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the backup of ", name(), "'s shard is incomplete, but its primary reports it in sync"));
      }
      backup_.in_sync = true;
      LogInfo("the backup of ", name(), "'s shard is in sync");
      return absl::OkStatus();
    case v1::ReplicationBody::kEntry:
      return AppendReplicated(body.entry(), floats, job_->shard());
    case v1::ReplicationBody::kInput: {
      if (job_->sequencer() == nullptr) break;
      CAIRN_ASSIGN_OR_RETURN(SequencerInput input, FromProto(body.input()));
      return job_->sequencer()->Step(std::move(input));
    }
    case v1::ReplicationBody::kMember:
      return put(body.member());
    case v1::ReplicationBody::kWritten:
      return WriteReplicated(floats, job_->shard());
    case v1::ReplicationBody::kEcho:
      while (!backup_.beats.empty() && backup_.beats.front().first <= body.echo()) {
        backup_.heard = backup_.beats.front().second;
        backup_.beats.pop_front();
      }
      return absl::OkStatus();
    default:  // an item of a component that has no state here
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name(), " has no sequencer to replicate"));
}

void Server::WokeUp() {
  std::shared_ptr<ActiveJob> job;
  {
    MutexLock lock(mutex_);
    members_.HearAll(clock_.Now());
    job = job_;
  }
  if (job != nullptr && job->sequencer() != nullptr) job->sequencer()->WokeUp();
}

bool Server::backup_in_sync() const {
  MutexLock lock(mutex_);
  return state_ == v1::STATE_BACKUP && backup_.in_sync;
}

void Server::BackupClosed(const ReplicationSink* sink, bool spoilt) {
  MutexLock lock(mutex_);
  if (state_ != v1::STATE_BACKUP || backup_.sink.get() != sink) return;
  backup_.sink = nullptr;
  if (spoilt) backup_.in_sync = false;
}

void Server::Promote(const v1::PromoteRequest& request, Reply<v1::PromoteResponse> reply) {
  absl::Status status;
  int64_t epoch = 0;
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> old;
  Calls calls;
  {
    MutexLock lock(mutex_);
    old = backup_.sink;
    status = Promote(request, &epoch);
    job = job_;
    if (status.ok()) CollectWaiters(clock_.Now(), calls);
  }
  for (auto& call : calls) call();
  if (!status.ok()) {
    reply(std::move(status));
    return;
  }
  if (old != nullptr)
    old->Close(absl::AbortedError(absl::StrCat("a backup has been promoted in place of ", name())));
  job->shard().Flush();
  v1::PromoteResponse response;
  response.set_epoch(epoch);
  reply(std::move(response));
}

absl::Status Server::Promote(const v1::PromoteRequest& request, int64_t* epoch) {
  if (shut_down_) return absl::UnavailableError(absl::StrCat("ps/", host_index(), " is stopping"));
  const bool same = job_ != nullptr && (request.incarnation() == 0 || request.incarnation() == incarnation_);
  if (same && state_ == v1::STATE_READY) {
    *epoch = epoch_;
    return absl::OkStatus();
  }
  if (!same || state_ != v1::STATE_BACKUP || !backup_.in_sync) {
    return absl::AbortedError(
        absl::StrCat("ps/", host_index(), " has no backup of ", name(), "'s shard that is in sync"));
  }
  const Duration silent = clock_.Now() - backup_.heard;
  if (backup_.sink != nullptr && silent <= kSilent) {
    return absl::UnavailableError(absl::StrCat(name(), " is alive: ps/", host_index(), " heard from it ",
                                               Milliseconds(silent), " ago"));
  }
  if (silent > kRight) {
    return absl::AbortedError(absl::StrCat("ps/", host_index(), " has not heard from ", name(), " for ",
                                           Milliseconds(silent),
                                           ": it may have continued without its backup"));
  }
  const int64_t next = backup_.epoch + 1;
  CAIRN_RETURN_IF_ERROR(job_->Promote(next));
  epoch_ = *epoch = next;
  state_ = v1::STATE_READY;
  ready_at_ = clock_.Now();
  members_.HearAll(ready_at_ + kSilent);  // the workers need time to find this server
  backup_ = {};
  LogWarning("ps/", host_index(), " is promoted in place of ", name(), ", at version ",
             job_->shard().store().current().version);
  return absl::OkStatus();
}

void Server::TickBackups(TimePoint now, const std::shared_ptr<ActiveJob>& job) {
  Calls calls;
  std::string lost;
  {
    MutexLock lock(mutex_);
    const bool due = backup_.beats.empty() || now - backup_.beats.back().second >= kBeat;
    if (state_ == v1::STATE_BACKUP && backup_.sink != nullptr && due) {
      backup_.beats.emplace_back(++backup_.last_beat, now);
      if (backup_.beats.size() > kMaxBeats) backup_.beats.pop_front();
      v1::ReplicationAck answer;
      answer.set_beat(backup_.last_beat);
      backup_.sink->Answer(answer);
    }
    if (job == nullptr || job != job_ || job->replicator() == nullptr) return;
    if (state_ == v1::STATE_INITIALISING && initialised_ && job->replicator()->was_in_sync()) {
      state_ = v1::STATE_READY;
      ready_at_ = now;
      CollectWaiters(now, calls);
    }
    lost = job->replicator()->fenced();
    if (lost.empty()) {
      std::vector<std::string> gone;
      for (const PushKey& key : job->shard().Missing()) {
        const auto members = members_.All();
        const auto is_it = [&](const Membership::Entry& entry) {
          return entry.worker == key.worker && entry.incarnation == key.incarnation && entry.live;
        };
        if (std::none_of(members.begin(), members.end(), is_it)) gone.push_back(members_.NameOf(key.worker));
      }
      if (!gone.empty()) {
        lost =
            absl::StrCat("an update needs gradients of ", absl::StrJoin(gone, ", "), ", lost with ", name());
      }
    }
  }
  for (auto& call : calls) call();
  if (lost.empty()) {
    job->ReportWaiting();
  } else {
    Drop(lost);
  }
}

void Server::Drop(const std::string& why) {
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<ReplicationSink> sink;
  {
    MutexLock lock(mutex_);
    if (state_ == v1::STATE_FINISHED || state_ == v1::STATE_FAILED) return;
    job = std::exchange(job_, nullptr);
    sink = std::exchange(backup_.sink, nullptr);
    backup_ = {};
    if (job != nullptr && state_ != v1::STATE_BACKUP) {
      dropped_ = {.run_id = job->job().run_id(), .generation = job->job().generation(), .epoch = epoch_};
    }
    state_ = v1::STATE_EMPTY;
    incarnation_ = options_.incarnation + ++drops_;
    epoch_ = 0;
    initialised_ = false;
    members_ = Membership({});
  }
  LogWarning("drops ", name(), "'s shard: ", why);
  const absl::Status gone =
      absl::UnavailableError(absl::StrCat(name(), "'s shard is not served here any more"));
  if (sink != nullptr) sink->Close(gone);
  if (job != nullptr) Retire(std::move(job), gone);
}

}  // namespace cairn::ps

#include "ps/server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
#include "ps/declaration.h"
#include "ps/progress_proto.h"
#include "ps/work_proto.h"

namespace cairn::ps {
namespace {

// How long a failed job's server stays to tell those who have not heard.
constexpr auto kFailureLinger = std::chrono::seconds(10);
// How long workers of a job that was set back have to join again: they may be in the middle of a step.
constexpr auto kReturn = std::chrono::seconds(30);
// Of each generation the incarnations are above those before, whatever the servers remember.
constexpr int kGenerationShift = 32;

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Server::Server(Options options, const Clock& clock)
    // Layouts of different processes differ, so what is meant for the one before this is not taken.
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
    reply(absl::FailedPreconditionError(absl::StrCat("this is ", name(), ", and ", request.client(),
                                                     " takes it for ps/", request.server(),
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
  response.set_local_socket(options_.local_socket);
  response.set_clock_unix_nanos(TraceClock());
  std::shared_ptr<ActiveJob> job;
  bool outdated;
  {
    MutexLock lock(mutex_);
    outdated = job_ != nullptr && state_ != v1::STATE_COPY && request.incarnation() == incarnation_ &&
               request.epoch() > epoch_;
  }
  if (outdated) Drop(absl::StrCat(request.client(), " knows that a copy has taken the place of ", name()));
  {
    MutexLock lock(mutex_);
    response.set_state(state_);
    response.set_incarnation(incarnation_);
    if (incarnation_ != options_.incarnation) response.set_process(options_.incarnation);
    response.set_epoch(epoch_);
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
  std::shared_ptr<ActiveJob> replaced;  // ends outside the lock
  absl::Status status;
  v1::CreateResponse response;
  std::shared_ptr<CopySink> copied;  // its job begins anew
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
      auto job = ActiveJob::Create(request.job(), variables_only ? std::vector<net::Slice>() : *slices,
                                   last_layout_ + 1, HostFor(incarnation_));
      status = job.status();
      if (job.ok()) {
        ++last_layout_;
        replaced = std::exchange(job_, *std::move(job));
        if (variables_only) status = AddVariables(request, *std::move(slices));
        if (status.ok()) {
          members_ = Membership({job_->job().workers().begin(), job_->job().workers().end()},
                                static_cast<uint64_t>(job_->job().generation()) << kGenerationShift,
                                job_->job().elastic());
          state_ = variables_only ? v1::STATE_READY : v1::STATE_INITIALISING;
          initialised_ = false;
          if (copying_.sink != nullptr) copied = copying_.sink;
          copying_ = {};
          CollectWaiters(clock_.Now(), calls);
        } else {
          job_.swap(replaced);
        }
      }
    }
    if (status.ok()) response.set_layout(job_->layout());
  }
  for (auto& call : calls) call();
  if (copied != nullptr) copied->Close(absl::FailedPreconditionError("the job is being created anew"));
  // Followers that were ready before this server is created anew are of the same run: they find the new
  // sequencer.
  if (status.ok() && replaced != nullptr && replaced->job().mode() != v1::MODE_VARIABLES) {
    Retire(std::move(replaced),
           absl::AbortedError(absl::StrCat("the variables of ", name(), " have been set back")));
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
    return absl::FailedPreconditionError(absl::StrCat("generation ", job.generation(), " of job ",
                                                      job.run_id(), ", where ", job_->job().generation(),
                                                      " is under way"));
  }
  const bool goes_on = same_run && job.generation() > job_->job().generation();
  if (state_ == v1::STATE_COPY) {
    const bool served = copying_.sink != nullptr && clock_.Now() - copying_.heard < kSilent;
    return goes_on || (!same_run && !served) ? absl::OkStatus() : CheckServes();
  }
  if (state_ == v1::STATE_INITIALISING || (state_ == v1::STATE_READY && goes_on)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job_->job().run_id(), " is under way, at version ", job_->shard().store().current().version));
}

absl::Status Server::AddVariables(const v1::CreateRequest& request, std::vector<net::Slice> added) {
  CAIRN_ASSIGN_OR_RETURN(job_, WithVariables(*job_, request, std::move(added), last_layout_ + 1));
  ++last_layout_;
  return absl::OkStatus();
}

void Server::Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (shut_down_) {
      calls.push_back([&reply] { reply(absl::UnavailableError("the server is stopping")); });
    } else if (const absl::Status serves = CheckServes(); !serves.ok()) {
      calls.push_back([&reply, serves] { reply(serves); });
    } else {
      const TimePoint now = clock_.Now();
      if (waiters_.full()) {
        calls.push_back([&reply] {
          reply(absl::ResourceExhaustedError(
              absl::StrCat(WaitList::kMostWaiting, " calls of Wait are waiting")));
        });
      } else {
        if (request.condition() == v1::CONDITION_WORK) reply = ToldWhenHeld(std::move(reply));
        waiters_.Add(request, now, std::move(reply));
      }
      CollectWaiters(now, calls);
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
                                 : absl::StrCat("the copy on ", job_->copy_name(), " is not whole yet");
      return state_ == v1::STATE_READY || state_ == v1::STATE_FINISHED;
    case v1::CONDITION_ALL_OTHERS_LEFT:
      if (state_ == v1::STATE_EMPTY) {  // whoever was here was here with another server
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
    response->set_missing(absl::StrCat(name(), " hands out no data"));
    return false;
  }
  const Work work = *job_->sequencer()->WorkOf(request.worker());
  *response->mutable_work() = ToProto(work);
  const int least = std::max(1, job_->job().min_workers());
  response->set_missing(work.members < least
                            ? absl::StrCat("workers: ", work.members, " of at least ", least, " take part")
                            : std::string("what others have not finished yet"));
  return work.over || !work.tickets.empty();
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

absl::Status Server::CheckReady() const {
  if (shut_down_) return absl::UnavailableError(absl::StrCat(name(), " is stopping"));
  if (state_ == v1::STATE_FAILED) return failure_;
  CAIRN_RETURN_IF_ERROR(CheckServes());
  if (job_ == nullptr || state_ == v1::STATE_INITIALISING) {
    return absl::FailedPreconditionError(absl::StrCat(name(), " has no variables yet"));
  }
  return absl::OkStatus();
}

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
    if (status.ok()) {
      const uint64_t incarnation = members_.Join(response.worker(), request.incarnation(), clock_.Now());
      response.set_incarnation(incarnation);
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
  AnswerWhenHeld<v1::JoinResponse>(job, std::move(reply), std::move(response));
}

absl::StatusOr<int> Server::AdmitWorker(const v1::JoinRequest& request) {
  const v1::Job& job = job_->job();
  int worker = request.worker();
  if (job.elastic() && worker == -1) worker = members_.NumberOf(request.task(), job_->most_workers());
  if (worker < 0 || worker >= job_->most_workers()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.task(), " is not among the ", job_->most_workers(), " workers of the job"));
  }
  const bool full = job.max_workers() > 0 && members_.PlacesTakenBut(worker) >= job.max_workers();
  if (full && request.incarnation() == 0 && worker != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(request.task(), ": the job has its ", job.max_workers(), " workers (--max_workers)"));
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
    if (state_ == v1::STATE_FINISHED) {  // also who is no member any more shall know
      response.set_state(state_);
    } else if (shut_down_) {
      status = absl::UnavailableError(absl::StrCat(name(), " is stopping"));
    } else if (status = CheckServes(); !status.ok()) {
    } else if (job_ == nullptr ||
               !members_.Heartbeat(request.worker(), request.incarnation(), request.step(), clock_.Now())) {
      status =
          absl::AbortedError(absl::StrCat(name(), ": incarnation ", request.incarnation(), " of ",
                                          members_.NameOf(request.worker()), " is no member of the job"));
    } else {
      if (request.has_report()) reports_[request.worker()] = request.report();
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
      SendMember(request.worker());
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
    if (request.reason() == v1::LEAVE_REASON_FAILED) {
      Fail(absl::InternalError(absl::StrCat(task, " failed: ", request.message())));
    }
  }
  AnswerWhenHeld<v1::LeaveResponse>(job, std::move(reply), v1::LeaveResponse());
}

absl::StatusOr<std::shared_ptr<ActiveJob>> Server::SequencedJob() const {
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(CheckReady());
  if (job_->sequencer() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(name(), " does not sequence this job"));
  }
  return job_;
}

void Server::Mark(const v1::MarkRequest& request, Reply<v1::MarkResponse> reply) {
  const auto job = SequencedJob();
  if (!job.ok()) {
    reply(job.status());
    return;
  }
  if (request.token().size() > kLongestMark) {
    reply(absl::InvalidArgumentError(
        absl::StrCat("a mark's name of ", request.token().size(), " bytes, at most ", kLongestMark)));
    return;
  }
  const auto progress =
      (*job)->sequencer()->WriteMark({.token = request.token(), .snapshot = request.snapshot()});
  if (!progress.ok()) {
    reply(Annotate(progress.status(), name()));
    return;
  }
  v1::MarkResponse response;
  if (request.snapshot()) *response.mutable_progress() = ProgressOf(**job, *progress, options_.index);
  AnswerWhenHeld<v1::MarkResponse>(*job, std::move(reply), std::move(response));
}

void Server::Amend(const v1::AmendRequest& request, Reply<v1::AmendResponse> reply) {
  const auto job = SequencedJob();
  absl::Status status = job.status();
  if (status.ok()) status = CheckAmendment(request.amendment(), (*job)->job().optimizer());
  if (status.ok()) {
    status =
        (*job)->sequencer()->Amend(request.incarnation(), request.number(), AmendmentOf(request.amendment()));
  }
  if (status.ok()) {
    AnswerWhenHeld<v1::AmendResponse>(*job, std::move(reply), v1::AmendResponse());
  } else {
    reply(Annotate(status, name()));
  }
}

void Server::Finish(const v1::FinishRequest& /*request*/, Reply<v1::FinishResponse> reply) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (state_ != v1::STATE_FAILED) state_ = v1::STATE_FINISHED;
    CollectWaiters(clock_.Now(), calls);
  }
  for (auto& call : calls) call();
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
    if (job_->replicator() != nullptr) {  // TickCopies() goes on
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
      job_->job().generation() != generation || job_->sequencer() == nullptr || state_ == v1::STATE_COPY) {
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
    LogError("the job failed: ", failure.message());
    state_ = v1::STATE_FAILED;
    failure_ = failure;
    failed_at_ = clock_.Now();
    job = job_;
    CollectWaiters(failed_at_, calls);
  }
  for (auto& call : calls) call();
  if (job != nullptr) job->shard().Fail(std::move(failure));
}

std::vector<Membership::Expired> Server::CollectExpired(TimePoint now, std::vector<std::string>& reasons) {
  const v1::Job& job = job_->job();
  std::vector<Membership::Expired> expired = members_.ExpireOlderThan(now - Seconds(job.lease_seconds()));
  for (const auto& gone : expired) {
    reasons.push_back(
        absl::StrCat(members_.NameOf(gone.worker), " was not heard of for ", job.lease_seconds(), " s"));
  }
  if (job.generation() > 0 && state_ == v1::STATE_READY && now - ready_at_ > kReturn) {
    for (const auto& gone : members_.ExpireAbsent()) {
      reasons.push_back(
          absl::StrCat(members_.NameOf(gone.worker), " did not come back within ", kReturn.count(), " s"));
      expired.push_back(gone);
    }
  }
  return expired;
}

void Server::Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) {
  job->QuitReplicating();
  if (job->sequencer() != nullptr) job->sequencer()->End();
  job->shard().Fail(why);
  MutexLock lock(mutex_);
  retired_.push_back(std::move(job));
}

void Server::BuryRetired() {
  std::vector<std::shared_ptr<ActiveJob>> over;  // end outside the lock
  MutexLock lock(mutex_);
  const auto first = std::partition(retired_.begin(), retired_.end(), [](const auto& job) { return job.use_count() > 1; });
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
    if (state_ == v1::STATE_COPY) {
      job = nullptr;  // who serves it looks after it
    } else if (job != nullptr && job->job().mode() != v1::MODE_VARIABLES) {
      expired = CollectExpired(now, reasons);
      for (const Membership::Expired& gone : expired) SendMember(gone.worker);
    }
    CollectWaiters(now, calls);
  }
  for (auto& call : calls) call();
  TickCopies(now, job);
  for (size_t i = 0; i < expired.size(); ++i) {
    const bool wait = job->job().wait_for_return();
    LogWarning(reasons[i], wait ? ": the job waits for its return" : ": it leaves the job");
    if (job->sequencer() != nullptr && !wait) {
      job->sequencer()->Leave(expired[i].worker, expired[i].incarnation);
    }
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
      return ExitCodeOf(failure_);
  }
  return std::nullopt;
}

void Server::Shutdown() {
  std::shared_ptr<ActiveJob> job;
  std::shared_ptr<CopySink> copied;
  Calls calls;
  {
    MutexLock lock(mutex_);
    if (shut_down_) return;
    shut_down_ = true;
    job = job_;
    copied = std::exchange(copying_.sink, nullptr);
    waiters_.Fail(absl::UnavailableError(absl::StrCat(name(), " is stopping")), calls);
  }
  for (auto& call : calls) call();
  if (copied != nullptr) copied->Close(absl::UnavailableError(absl::StrCat(name(), " is stopping")));
  if (job != nullptr) job->StopReplicating();
  // A follower may be a part in this very process, which ends after us.
  if (job != nullptr && job->sequencer() != nullptr) job->sequencer()->End();
  if (job != nullptr) job->shard().Fail(absl::UnavailableError(absl::StrCat(name(), " is stopping")));
}

}  // namespace cairn::ps

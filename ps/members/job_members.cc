#include "ps/members/job_members.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/net/security/seal.h"
#include "ps/members/incarnation.h"

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
std::string ProcessName(const v1::Process& process) {
  return absl::StrCat("process ", process.pid(), " on ",
                      process.host().empty() ? "an unknown host" : process.host(),
                      process.address().empty() ? "" : absl::StrCat(" (", process.address(), ")"));
}

v1::MemberState StateOf(const Membership::Member* member) {
  if (member == nullptr) return v1::MEMBER_STATE_EXPECTED;
  switch (member->state) {
    case Membership::State::kLive:
      return v1::MEMBER_STATE_LIVE;
    case Membership::State::kLeft:
      return v1::MEMBER_STATE_LEFT;
    case Membership::State::kExpired:
      return v1::MEMBER_STATE_LOST;
  }
  return v1::MEMBER_STATE_UNSPECIFIED;
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

JobMembers::JobMembers(const v1::Job& job, Options options)
    : job_(job),
      options_(std::move(options)),
      members_({job.workers().begin(), job.workers().end()}, IncarnationsBefore(job.generation()),
               job.elastic()) {}

absl::StatusOr<v1::JoinResponse> JobMembers::Join(const v1::JoinRequest& request, TimePoint now) {
  MutexLock lock(mutex_);
  CAIRN_ASSIGN_OR_RETURN(const int worker, Admit(request));
  CAIRN_RETURN_IF_ERROR(CheckSealed(request, worker));
  // If the request has an incarnation, the server that drew it has made this check for all servers.
  if (request.incarnation() == 0) CAIRN_RETURN_IF_ERROR(CheckAvailable(request, worker, now));
  const uint64_t incarnation = members_.Join(worker, request.incarnation(), now, request.process());
  if (incarnation == 0) {
    return absl::AbortedError(absl::StrCat(request.task(), " has been restarted since: incarnation ",
                                           request.incarnation(), " is not its newest"));
  }
  SendLocked(worker);
  v1::JoinResponse response;
  response.set_worker(worker);
  response.set_incarnation(incarnation);
  response.set_incarnation_seal(net::SealOf(options_.seal_key, IncarnationFacts(job_, worker, incarnation)));
  return response;
}

absl::StatusOr<int> JobMembers::Admit(const v1::JoinRequest& request) {
  if (request.task().size() > kMaxTaskName) {
    return absl::InvalidArgumentError(
        absl::StrCat("a task's name cannot have ", request.task().size(), " bytes, at most ", kMaxTaskName));
  }
  int worker = request.worker();
  if (job_.elastic() && worker == -1) worker = members_.NumberOf(request.task(), options_.most_workers);
  if (worker < 0 || worker >= options_.most_workers) {
    return absl::InvalidArgumentError(absl::StrCat(request.task(), " is not among the ",
                                                   Counted(options_.most_workers, "worker"), " of the job"));
  }
  const bool full = job_.max_workers() > 0 && members_.TakenExcept(worker) >= job_.max_workers();
  if (full && request.incarnation() == 0 && worker != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(request.task(), ": the job already has its ",
                                                     Counted(job_.max_workers(), "worker"),
                                                     " (--max_workers)"));
  }
  if (job_.elastic()) members_.SetName(worker, request.task());
  return worker;
}

absl::Status JobMembers::CheckSealed(const v1::JoinRequest& request, int worker) const {
  if (request.incarnation() == 0 ||
      net::SealHolds(options_.seal_key, IncarnationFacts(job_, worker, request.incarnation()),
                     request.incarnation_seal())) {
    return absl::OkStatus();
  }
  const int64_t drawn_in = GenerationOf(request.incarnation()), generation = job_.generation();
  if (drawn_in != generation) {  // the job was rolled back while the worker joined
    return absl::AbortedError(absl::StrCat(members_.NameOf(worker), "'s incarnation ", request.incarnation(),
                                           " is of generation ", drawn_in, ", and ", options_.server,
                                           " is at generation ", generation));
  }
  return absl::PermissionDeniedError(absl::StrCat(members_.NameOf(worker), " claims the incarnation ",
                                                  request.incarnation(),
                                                  ", which no server of this job has given it"));
}

absl::Status JobMembers::CheckAvailable(const v1::JoinRequest& request, int worker, TimePoint now) {
  const Duration silence = FromSeconds(job_.lease_seconds()) / 2;  // two heartbeats
  const Membership::Availability availability =
      members_.CheckAvailability(worker, request.process().id(), now, silence);
  if (availability == Membership::Availability::kFree) return absl::OkStatus();
  const Membership::Member& other = *members_.Find(worker);
  const std::string task = members_.NameOf(worker);
  if (availability == Membership::Availability::kUnclear) {
    return absl::UnavailableError(absl::StrCat(task, " was ", ProcessName(other.process),
                                               " until now: waiting for ", ToSeconds(silence),
                                               " s to see whether it is still alive"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      task, " is already running: ", ProcessName(other.process), " is alive, and this is ",
      ProcessName(request.process()), "; give every task its own index (--task_index, TF_CONFIG)"));
}

absl::Status JobMembers::Heartbeat(const v1::HeartbeatRequest& request, TimePoint now) {
  MutexLock lock(mutex_);
  if (members_.Heartbeat(request.worker(), request.incarnation(), request.step(), now)) {
    if (request.has_report() && request.report().device().size() <= kMaxDeviceName) {
      reports_[request.worker()] = request.report();
    }
    return absl::OkStatus();
  }
  const Membership::Member* const member = members_.Find(request.worker());
  const bool ousted = member != nullptr && member->incarnation > request.incarnation();
  return absl::AbortedError(absl::StrCat(
      options_.server, ": incarnation ", request.incarnation(), " of ", members_.NameOf(request.worker()),
      " is not a member of the job",
      ousted ? absl::StrCat(" since ", ProcessName(member->process), " has joined in its place") : ""));
}

bool JobMembers::Leave(int worker, uint64_t incarnation) {
  MutexLock lock(mutex_);
  return members_.Leave(worker, incarnation);
}

std::vector<JobMembers::Lost> JobMembers::Expire(TimePoint now, std::optional<TimePoint> ready_at) {
  MutexLock lock(mutex_);
  std::vector<Lost> lost;
  for (const auto& [worker, incarnation] :
       members_.ExpireOlderThan(now - FromSeconds(job_.lease_seconds()))) {
    lost.push_back(
        {worker, incarnation,
         absl::StrCat(members_.NameOf(worker), " sent no heartbeat for ", job_.lease_seconds(), " s")});
  }
  const bool rolled_back = job_.generation() > 0 && job_.has_resumed();
  if (rolled_back && ready_at.has_value() && now - *ready_at > kReturn) {
    for (const auto& [worker, incarnation] : members_.ExpireAbsent()) {
      lost.push_back(
          {worker, incarnation,
           absl::StrCat(members_.NameOf(worker), " did not rejoin within ", kReturn.count(), " s")});
    }
  }
  return lost;
}

void JobMembers::StreamBroke(int worker, uint64_t incarnation) {
  MutexLock lock(mutex_);
  members_.StreamBroke(worker, incarnation);
}

void JobMembers::HearAll(TimePoint when) {
  MutexLock lock(mutex_);
  members_.HearAll(when);
}

std::string JobMembers::NameOf(int worker) const {
  MutexLock lock(mutex_);
  return members_.NameOf(worker);
}

std::string JobMembers::TaskOf(int worker) const {
  MutexLock lock(mutex_);
  return members_.HasName(worker) ? members_.NameOf(worker) : "";
}

bool JobMembers::IsLive(int worker, uint64_t incarnation) const {
  MutexLock lock(mutex_);
  const Membership::Member* const member = members_.Find(worker);
  return member != nullptr && member->incarnation == incarnation && member->state == Membership::State::kLive;
}

absl::Status JobMembers::CheckIncarnationGiven(int worker, uint64_t incarnation) const {
  MutexLock lock(mutex_);
  const Membership::Member* const member = members_.Find(worker);
  if (member != nullptr && incarnation <= member->incarnation) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(options_.server, ": incarnation ", incarnation, " of ",
                                         members_.NameOf(worker), " has not joined"));
}

bool JobMembers::AllOthersLeft(int worker, std::string* missing) const {
  MutexLock lock(mutex_);
  return members_.AllOthersLeft(worker, missing);
}

void JobMembers::Describe(TimePoint now, v1::ServerStatus& status) const {
  MutexLock lock(mutex_);
  for (int worker = 0; worker < members_.num_expected(); ++worker) {
    const Membership::Member* known = members_.Find(worker);
    v1::Member& member = *status.add_members();
    member.set_task(members_.NameOf(worker));
    member.set_state(StateOf(known));
    if (known != nullptr) {
      member.set_incarnation(known->incarnation);
      member.set_step(known->step);
      member.set_heard_seconds(std::max(0.0, ToSeconds(now - known->last_heard)));
    }
    if (const auto report = reports_.find(worker); report != reports_.end()) {
      *member.mutable_report() = report->second;
    }
  }
}

void JobMembers::ReplicateTo(Replicator* replicator) {
  MutexLock lock(mutex_);
  replicator_ = replicator;
}

void JobMembers::SendToBackup(int worker) {
  MutexLock lock(mutex_);
  SendLocked(worker);
}

void JobMembers::SendLocked(int worker) {
  if (replicator_ == nullptr) return;
  for (const Membership::Entry& entry : members_.All()) {
    if (entry.worker != worker) continue;
    ReplicationItem item;
    Save(entry, *item.body.mutable_member());
    replicator_->Send(Replicator::Component::kMembers, std::move(item));
  }
}

void JobMembers::Capture() {
  MutexLock lock(mutex_);
  if (replicator_ == nullptr) return;
  ReplicationItem item;
  v1::ReplicatedMembers& members = *item.body.mutable_members();
  for (const Membership::Entry& entry : members_.All()) Save(entry, *members.add_members());
  replicator_->SendState(Replicator::Component::kMembers, std::move(item));
}

absl::Status JobMembers::Put(const v1::ReplicatedMember& member, TimePoint now) {
  if (member.worker() < 0 || member.worker() >= options_.most_workers) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated member is worker ", member.worker(),
                                                   ", but the number of workers is ", options_.most_workers));
  }
  MutexLock lock(mutex_);
  members_.Put(
      {member.worker(), member.incarnation(), member.live(), member.step(), member.task(), member.process()},
      now);
  return absl::OkStatus();
}

}  // namespace cairn::ps

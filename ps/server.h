// One parameter server task: its job, who takes part in it, and how it ends. Knows no gRPC; the service
// adapts its calls, and tests use it directly.
//
//   EMPTY ──Create──► INITIALISING ──values written──► READY ──Finish──► FINISHED
//                      (Create again starts anew)      │ └──Leave(FAILED), NaN──► FAILED
//                             ▲                        │
//                             └─Create, a generation on┘
//
// With ps_replication (server_copy.cc), a Server is one part of the job in one process, and another process
// has another Server for the same part:
//
//   EMPTY ──OpenCopy──► COPY ──Promote──► READY ── the copy has taken its place ──► EMPTY
//
// Thread-safe. Calls do not block: a call that must wait keeps its reply and returns. Replies come from any
// thread, outside all locks. Lock order: the server's, then the sequencer's, then a shard's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/core/memory_size.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/direct/address.h"
#include "ps/active_job.h"
#include "ps/membership.h"
#include "ps/meters.h"
#include "ps/wait_list.h"

namespace cairn::ps {

// The way back from a copy to the server that it is the copy of. Thread-safe; must not block.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void Answer(const v1::CopyAnswer& answer) = 0;
  virtual void Close(absl::Status reason) = 0;
};

template <typename Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

class Server {
 public:
  struct Options {
    int index = 0;                                 // of the part: ps/index, as clients know it
    int place = -1;                                // index of the process that it is in; -1: the same
    uint64_t cluster_hash = 0;                     // 0: clients' is not compared
    uint64_t incarnation = 1;                      // differs between processes
    ActiveJob::LeaderConnector connect_to_leader;  // needed where index > 0
    CopyDialer connect_to_copy{};                  // needed for jobs with ps_replication
    bool copies_by_calls = false;                  // KeepUpCopies(), by the clock given; else by a thread
    int64_t memory_limit = UsableMemory();         // bytes, of one job: MemoryNeeds
    Crew* crew = nullptr;                          // likewise
    FaultPoints* faults = nullptr;                 // as Shard::Options
    TraceRecorder* trace = nullptr;                // likewise
    net::DirectAddress direct{};                   // where DirectService takes sessions
  };
  // `clock` must outlive the server.
  Server(Options options, const Clock& clock);
  ~Server();

  // The calls of parameter_server.proto, with the statuses described there.
  void Connect(const v1::ConnectRequest& request, Reply<v1::ConnectResponse> reply);
  void Create(const v1::CreateRequest& request, Reply<v1::CreateResponse> reply);
  void Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply);
  void Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply);
  void Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply);
  void Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply);
  void Mark(const v1::MarkRequest& request, Reply<v1::MarkResponse> reply);
  void Amend(const v1::AmendRequest& request, Reply<v1::AmendResponse> reply);
  void Finish(const v1::FinishRequest& request, Reply<v1::FinishResponse> reply);
  void Promote(const v1::PromoteRequest& request, Reply<v1::PromoteResponse> reply);

  // --- The copy of another process' part: for the streams of Replicate ---
  // Begins the copy anew. ABORTED when it has taken the caller's place; FAILED_PRECONDITION when something
  // else is here, INVALID_ARGUMENT and RESOURCE_EXHAUSTED as Create().
  absl::StatusOr<std::shared_ptr<ActiveJob>> OpenCopy(const v1::CopyOrigin& origin,
                                                      std::shared_ptr<CopySink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // An item of the stream that `sink` is of: has it, says so, and carries it out. An error ends the stream:
  // ABORTED when the caller's place has been taken, CANCELLED when only its stream keeps no copy any more.
  absl::Status OnCopied(const CopySink* sink, uint64_t number, const v1::CopyBody& body,
                        std::shared_ptr<const AlignedBuffer> floats) ABSL_LOCKS_EXCLUDED(mutex_);
  // `spoilt`: the copy cannot be kept up, and will not take the place.
  void CopyClosed(const CopySink* sink, bool spoilt = false) ABSL_LOCKS_EXCLUDED(mutex_);

  // The job under this layout, for a session. ABORTED when the variables have changed since, or this process
  // never had them (connect again).
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobForLayout(uint64_t layout) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The first values of the job under this layout are complete.
  void OnInitialised(uint64_t layout) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ready() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The worker of this number: "worker/3"; empty: none is.
  std::string TaskOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool elastic() const ABSL_LOCKS_EXCLUDED(mutex_);
  // ABORTED for a push of an incarnation that no server has given the worker: it must join first.
  absl::Status CheckIncarnationGiven(int worker, uint64_t incarnation) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Membership::StreamBroke().
  void PushStreamBroke(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // This is the copy of a part that another process serves, and may take its place.
  bool copy_whole() const ABSL_LOCKS_EXCLUDED(mutex_);

  // What this server tells whoever looks: but for rates, which need two looks.
  v1::ServerStatus Status() const ABSL_LOCKS_EXCLUDED(mutex_);
  Meters& meters() { return meters_; }
  // Null where nothing is recorded.
  TraceRecorder* trace() const { return options_.trace; }
  // Of the process; another in each of its lives.
  uint64_t process() const { return options_.incarnation; }

  // For a follower: the sequencer of this generation of `run_id`. UNAVAILABLE while this server does not have
  // that job.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobToFollow(const std::string& run_id, int64_t generation) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Expires leases and waits. The owner calls it several times a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Options::copies_by_calls: sends to the copy what is to be sent now. One thread, often.
  void KeepUpCopies() ABSL_LOCKS_EXCLUDED(mutex_);
  // This process has stood still for a while, and has heard of nobody: that is not their silence.
  void WokeUp() ABSL_LOCKS_EXCLUDED(mutex_);

  // How this task ends: kDone after Finish, the failure's code when the job failed and everybody has been
  // told; kDone then too, if the failure is that an operator cancelled the job.
  std::optional<ExitCode> ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers everything that waits with UNAVAILABLE. Calls that come later are answered so too.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Calls = WaitList::Calls;

  // What is here of the copy of another process' part.
  struct Copying {
    std::shared_ptr<CopySink> sink;                 // null: the stream has ended
    bool has_shard = false, has_sequencer = false;  // their states have come
    bool whole = false;
    int64_t epoch = 0;  // of who serves the part
    uint64_t last_beat = 0;
    std::deque<std::pair<uint64_t, TimePoint>> beats{};  // sent, and not come back
    TimePoint heard{};                                   // when the last one that came back was sent
  };

  std::string name() const { return absl::StrCat("ps/", options_.index); }
  int place() const { return options_.place < 0 ? options_.index : options_.place; }
  ActiveJob::Host HostFor(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // This serves the part, and who calls serves it since.
  bool IsBehind(const v1::CopyOrigin& origin) const ABSL_LOCKS_EXCLUDED(mutex_);
  // UNAVAILABLE where this is a copy, or not what it was.
  absl::Status CheckServes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakePlace(const v1::PromoteRequest& request, int64_t* epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Restore(const v1::CopyBody& body, const std::shared_ptr<const AlignedBuffer>& floats)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendMember(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CaptureMembers(Replicator& replicator) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of Tick(): beats, a first copy that is whole, a place that was lost, gradients that will not come.
  void TickCopies(TimePoint now, const std::shared_ptr<ActiveJob>& job) ABSL_LOCKS_EXCLUDED(mutex_);
  // This server has another job now, or none: tells who waits for this one's why. Streams are ended by
  // Tick(), as their end may need the thread that calls this.
  void Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void BuryRetired() ABSL_LOCKS_EXCLUDED(mutex_);
  // As if this process had been started again.
  void Drop(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Now, or when the job's copy knows what the answer tells.
  template <typename Response>
  static void AnswerWhenHeld(const std::shared_ptr<ActiveJob>& job, Reply<Response> reply,
                             absl::StatusOr<Response> answer) {
    if (job == nullptr || job->replicator() == nullptr) {
      reply(std::move(answer));
      return;
    }
    job->replicator()->WhenHeld(
        [reply = std::move(reply), answer = std::move(answer)](const absl::Status& lost) mutable {
          reply(lost.ok() ? std::move(answer) : absl::StatusOr<Response>(lost));
        });
  }
  // What a call of Wait is told comes of what the copy knows too.
  Reply<v1::WaitResponse> ToldWhenHeld(Reply<v1::WaitResponse> reply) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For clients that put their timelines beside ours; 0 where nothing is recorded.
  int64_t TraceClock() const;
  bool Holds(const v1::WaitRequest& request, v1::WaitResponse* response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the waiters whose condition holds, or whose time is up at `now`, to `calls`.
  void CollectWaiters(TimePoint now, Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Unless the job is ready: the failure, or ABORTED, since the client has to wait for CONDITION_READY first.
  absl::Status CheckReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job whose log is written here; FAILED_PRECONDITION where another server does that.
  absl::StatusOr<std::shared_ptr<ActiveJob>> SequencedJob() const ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION where a job is under way that `job` does not go on from.
  absl::Status CheckReplaceable(const v1::Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Members whose lease has run out, and after a set-back those that have not come back: they leave.
  std::vector<Membership::Expired> CollectExpired(TimePoint now, std::vector<std::string>& reasons)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of an elastic job: which number the task has; RESOURCE_EXHAUSTED when there are as many as it takes.
  absl::StatusOr<int> AdmitWorker(const v1::JoinRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The incarnation that the request carries was drawn by a server of this job for this worker; 0 is fine.
  // ABORTED for one of another generation of the job, PERMISSION_DENIED otherwise.
  absl::Status CheckSealed(const v1::JoinRequest& request, int worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FAILED_PRECONDITION naming the other process that is `worker`, UNAVAILABLE until it is clear whether it
  // lives.
  absl::Status CheckPlace(const v1::JoinRequest& request, int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // CONDITION_WORK.
  bool HasWork(const v1::WaitRequest& request, v1::WaitResponse* response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddVariables(const v1::CreateRequest& request, std::vector<net::Slice> slices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of `job`, unless another has taken its place; null: of whichever there is.
  void Fail(absl::Status failure, const ActiveJob* job = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string WaitingFor(Sequencer& sequencer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  const TimePoint started_;
  Meters meters_;

  mutable Mutex mutex_;
  v1::State state_ ABSL_GUARDED_BY(mutex_) = v1::STATE_EMPTY;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  TimePoint failed_at_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;  // by Finish with `cancelled_by`
  TimePoint ready_at_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ActiveJob> job_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ActiveJob>> retired_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_layout_ ABSL_GUARDED_BY(mutex_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_);  // of the part; a copy's is that of who serves it
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;     // of the part, where it is served here
  uint64_t drops_ ABSL_GUARDED_BY(mutex_) = 0;
  bool initialised_ ABSL_GUARDED_BY(mutex_) = false;  // has its values, and waits for the copy to be whole
  Copying copying_ ABSL_GUARDED_BY(mutex_);           // in STATE_COPY
  // The last part of a job that was served here and has been dropped.
  struct Dropped {
    std::string run_id{};
    int64_t generation = -1, epoch = 0;
  };
  Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  Membership members_ ABSL_GUARDED_BY(mutex_){{}};
  WaitList waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<int, v1::WorkerReport> reports_ ABSL_GUARDED_BY(mutex_);  // [worker] its last
};

}  // namespace cairn::ps

// One parameter server task: its job, its members, and how the task ends. Knows no gRPC: the service adapts
// its calls, and tests use it directly.
//
//   EMPTY ──Create──► INITIALISING ──values written──► READY ──Finish──► FINISHED
//                      (Create again restarts)         │ └──Leave(FAILED), NaN──► FAILED
//                             ▲                        │
//                             └─Create, next generation┘
//
// With ps_replication (server_backup.cc), a Server is one shard of the job in one process, and another
// process has a second Server for the same shard:
//
//   EMPTY ──OpenBackup──► BACKUP ──Promote──► READY ── replaced by its own backup ──► EMPTY
//
// Thread-safe. Calls do not block: a call that must wait keeps its reply and returns. Replies come from any
// thread, outside all locks. Lock order: server, sequencer, shard.
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
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "common/net/data_channel/data_endpoint.h"
#include "ps/job/active_job.h"
#include "ps/job/membership.h"
#include "ps/job/wait_list.h"
#include "ps/shard/metrics.h"

namespace cairn::ps {

// Sends a backup's answers to its primary. Thread-safe; must not block.
class ReplicationSink {
 public:
  virtual ~ReplicationSink() = default;
  virtual void Answer(const v1::ReplicationAck& answer) = 0;
  virtual void Close(absl::Status reason) = 0;
};

template <typename Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

class Server {
 public:
  struct Options {
    int index = 0;              // the shard's index: clients know it as ps/index
    int host_index = -1;        // index of the process that serves the shard; -1: the same as `index`
    uint64_t cluster_hash = 0;  // 0: the clients' hash is not compared
    uint64_t incarnation = 1;   // differs between processes
    ActiveJob::LeaderConnector connect_to_leader;  // required if index > 0
    BackupDialer connect_to_backup{};              // required for jobs with ps_replication
    // Replication runs in KeepUpBackups(), by the given clock, instead of in a thread.
    bool replicates_by_calls = false;
    int64_t memory_limit = UsableMemory();  // limit for one job, in bytes: see MemoryNeeds
    ThreadPool* thread_pool = nullptr;      // for updates; may be null
    FaultPoints* faults = nullptr;          // as in Shard::Options
    TraceRecorder* trace = nullptr;         // as in Shard::Options
    net::DataEndpoint data_endpoint{};      // where DataChannelService accepts sessions
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
  void PlaceMarker(const v1::PlaceMarkerRequest& request, Reply<v1::PlaceMarkerResponse> reply);
  void ChangeConfig(const v1::ChangeConfigRequest& request, Reply<v1::ChangeConfigResponse> reply);
  void Finish(const v1::FinishRequest& request, Reply<v1::FinishResponse> reply);
  void Promote(const v1::PromoteRequest& request, Reply<v1::PromoteResponse> reply);

  // --- Backup of a shard that another process serves: for the streams of Replicate ---
  // Starts a new backup. ABORTED if this server has been promoted in place of the caller. FAILED_PRECONDITION
  // if this server has another job or serves this shard. INVALID_ARGUMENT and RESOURCE_EXHAUSTED as in
  // Create().
  absl::StatusOr<std::shared_ptr<ActiveJob>> OpenBackup(const v1::ReplicationOrigin& origin,
                                                        std::shared_ptr<ReplicationSink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Handles an item of the stream that `sink` belongs to: acknowledges the item, then carries it out. An
  // error ends the stream: ABORTED if this server has been promoted in place of the caller, CANCELLED if this
  // stream no longer feeds the backup.
  absl::Status OnReplicated(const ReplicationSink* sink, uint64_t number, const v1::ReplicationBody& body,
                            std::shared_ptr<const AlignedBuffer> floats) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream that `sink` belongs to has ended. `spoilt`: the backup is no longer consistent, and will not
  // be promoted.
  void BackupClosed(const ReplicationSink* sink, bool spoilt = false) ABSL_LOCKS_EXCLUDED(mutex_);

  // The job with this layout, for a session. ABORTED if the variables have changed since, or if this process
  // never had this layout: the client must connect again.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobForLayout(uint64_t layout) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The initial values of the job with this layout are complete.
  void OnInitialised(uint64_t layout) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ready() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The name of the worker with this number: "worker/3"; empty if there is none.
  std::string TaskOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool elastic() const ABSL_LOCKS_EXCLUDED(mutex_);
  // ABORTED for a push of an incarnation that no server has given to the worker: the worker must join first.
  absl::Status CheckIncarnationGiven(int worker, uint64_t incarnation) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Membership::StreamBroke().
  void PushStreamBroke(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether this server is a backup in sync, which may be promoted.
  bool backup_in_sync() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The status of this server, without rates, which need two samples.
  v1::ServerStatus Status() const ABSL_LOCKS_EXCLUDED(mutex_);
  Metrics& metrics() { return metrics_; }
  // Null if no trace is recorded.
  TraceRecorder* trace() const { return options_.trace; }
  // Identifies the process; differs each time it is started.
  uint64_t process() const { return options_.incarnation; }

  // For a follower: the job with this `run_id` and generation, whose sequencer runs here. UNAVAILABLE while
  // this server does not have that job.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobToFollow(const std::string& run_id, int64_t generation) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the leases and the waiting calls whose time is over. The owner calls it several times a second.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // With Options::replicates_by_calls: one step of replication. Called often, by one thread.
  void KeepUpBackups() ABSL_LOCKS_EXCLUDED(mutex_);
  // The process was paused: silence of other tasks during the pause does not count against them.
  void WokeUp() ABSL_LOCKS_EXCLUDED(mutex_);

  // How this task ends; nullopt while it continues. kDone after Finish(), and if an operator cancelled the
  // job. If the job has failed in another way: the exit code of the failure, once every client has been
  // notified.
  std::optional<ExitCode> ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers every waiting and every later call with UNAVAILABLE.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Calls = WaitList::Calls;

  // The state of a backup of another process' shard.
  struct BackupState {
    std::shared_ptr<ReplicationSink> sink;          // null: the stream has ended
    bool has_shard = false, has_sequencer = false;  // whether these states have arrived
    bool in_sync = false;
    int64_t epoch = 0;  // the primary's epoch
    uint64_t last_beat = 0;
    // Heartbeats that the primary has not echoed: (number, time of sending).
    std::deque<std::pair<uint64_t, TimePoint>> beats{};
    TimePoint heard{};  // when the last echoed heartbeat was sent
  };

  std::string name() const { return absl::StrCat("ps/", options_.index); }
  int host_index() const { return options_.host_index < 0 ? options_.index : options_.host_index; }
  ActiveJob::Host HostFor(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this server serves the shard although the caller has been promoted in its place.
  bool IsBehind(const v1::ReplicationOrigin& origin) const ABSL_LOCKS_EXCLUDED(mutex_);
  // UNAVAILABLE if this is a backup, or no longer serves the shard.
  absl::Status CheckServes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Promote(const v1::PromoteRequest& request, int64_t* epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Restore(const v1::ReplicationBody& body, const std::shared_ptr<const AlignedBuffer>& floats)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendMember(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CaptureMembers(Replicator& replicator) ABSL_LOCKS_EXCLUDED(mutex_);
  // The part of Tick() that concerns replication. Sends heartbeats; makes the job ready when its first backup
  // is in sync; drops the shard if it is fenced or lacks gradients that no live worker can send again.
  void TickBackups(TimePoint now, const std::shared_ptr<ActiveJob>& job) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called when this server has replaced or dropped `job`: fails the calls that wait for `job` with `why`.
  // Tick() ends the streams of `job` later, because their end may depend on the thread that calls this.
  void Retire(std::shared_ptr<ActiveJob> job, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void BuryRetired() ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the job, as if the process had just started.
  void Drop(const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Replies now or, if the job has a backup, when the backup has received everything that the answer reveals.
  template <typename Response>
  static void AnswerWhenReplicated(const std::shared_ptr<ActiveJob>& job, Reply<Response> reply,
                                   absl::StatusOr<Response> answer) {
    if (job == nullptr || job->replicator() == nullptr) {
      reply(std::move(answer));
      return;
    }
    job->replicator()->WhenReplicated(
        [reply = std::move(reply), answer = std::move(answer)](const absl::Status& lost) mutable {
          reply(lost.ok() ? std::move(answer) : absl::StatusOr<Response>(lost));
        });
  }
  // A reply for Wait() that goes through AnswerWhenReplicated().
  Reply<v1::WaitResponse> AnsweredWhenReplicated(Reply<v1::WaitResponse> reply) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The clock of this server's trace, for clients that merge their timelines with it; 0 if no trace is
  // recorded.
  int64_t TraceClock() const;
  bool Holds(const v1::WaitRequest& request, v1::WaitResponse* response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the waiters whose condition holds, or whose deadline has passed at `now`, to `calls`.
  void CollectWaiters(TimePoint now, Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK if the job is ready. Otherwise the job's failure or, if the client must first wait for
  // CONDITION_READY, ABORTED.
  absl::Status CheckReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job whose log is written here; FAILED_PRECONDITION if another server writes it.
  absl::StatusOr<std::shared_ptr<ActiveJob>> SequencedJob() const ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION if another job is active and `job` does not continue it.
  absl::Status CheckReplaceable(const v1::Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Expires members whose lease has run out and, after a rollback, those that have not joined again. Returns
  // them, with the reason for each.
  std::vector<Membership::Expired> CollectExpired(TimePoint now, std::vector<std::string>& reasons)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The number of the worker that asks to join; in an elastic job, a new task gets a new number.
  // INVALID_ARGUMENT for a task that is not in the job. RESOURCE_EXHAUSTED if the job has its maximum of
  // workers.
  absl::StatusOr<int> AdmitWorker(const v1::JoinRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK if the incarnation in the request was drawn by a server of this job for this worker, or is 0. ABORTED
  // for an incarnation of another generation of the job, otherwise PERMISSION_DENIED.
  absl::Status CheckSealed(const v1::JoinRequest& request, int worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FAILED_PRECONDITION, naming the process, if another process is `worker`. UNAVAILABLE until it is clear
  // whether that process is alive.
  absl::Status CheckAvailable(const v1::JoinRequest& request, int worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether CONDITION_WORK holds.
  bool HasWork(const v1::WaitRequest& request, v1::WaitResponse* response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddVariables(const v1::CreateRequest& request, std::vector<net::Slice> slices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails `job`, unless another job has replaced it. Null: fails the current job.
  void Fail(absl::Status failure, const ActiveJob* job = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string WaitingFor(Sequencer& sequencer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  const TimePoint started_;
  Metrics metrics_;

  mutable Mutex mutex_;
  v1::State state_ ABSL_GUARDED_BY(mutex_) = v1::STATE_EMPTY;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  TimePoint failed_at_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;  // Finish() has been called with `cancelled_by`
  TimePoint ready_at_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ActiveJob> job_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ActiveJob>> retired_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_layout_ ABSL_GUARDED_BY(mutex_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_);  // the shard's incarnation; in a backup, its primary's
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;     // the shard's epoch, if this server serves it
  uint64_t drops_ ABSL_GUARDED_BY(mutex_) = 0;
  // The job has its values, and waits until its backup is in sync.
  bool initialised_ ABSL_GUARDED_BY(mutex_) = false;
  BackupState backup_ ABSL_GUARDED_BY(mutex_);  // used in STATE_BACKUP
  // The last shard that this server served and has dropped.
  struct Dropped {
    std::string run_id{};
    int64_t generation = -1, epoch = 0;
  };
  Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  Membership members_ ABSL_GUARDED_BY(mutex_){{}};
  WaitList waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<int, v1::WorkerReport> reports_ ABSL_GUARDED_BY(mutex_);  // [worker]: its last report
};

}  // namespace cairn::ps

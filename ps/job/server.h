// One parameter server task, as its callers see it: turns the calls of parameter_server.proto into calls of the
// hosted job (HostedJob), its members (JobMembers) and its sequencer. Knows no gRPC: the service adapts its
// calls, and tests use it directly.
//
// Has no state of its own, so it has no lock. Thread-safe. Calls do not block: a call that must wait keeps its
// reply and returns. Replies come from any thread, outside all locks. JobLifecycle draws the job's states.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "common/net/data_channel/data_endpoint.h"
#include "ps/job/active_job.h"
#include "ps/job/hosted_job.h"
#include "ps/job/replicated_answer.h"
#include "ps/shard/metrics.h"

namespace cairn::ps {

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
    const TableFactory* tables = nullptr;   // as in ActiveJob::Host; outlives the server
    net::DataEndpoint data_endpoint{};      // where DataChannelService accepts sessions
  };
  // `clock` must outlive the server.
  Server(Options options, const Clock& clock);

  // The calls of parameter_server.proto, with the statuses described there.
  void Connect(const v1::ConnectRequest& request, Reply<v1::ConnectResponse> reply);
  void Create(const v1::CreateRequest& request, Reply<v1::CreateResponse> reply);
  void Wait(const v1::WaitRequest& request, Reply<v1::WaitResponse> reply);
  void Join(const v1::JoinRequest& request, Reply<v1::JoinResponse> reply);
  void BatchMean(const v1::BatchMeanRequest& request, Reply<v1::BatchMeanResponse> reply);
  void Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply);
  void Leave(const v1::LeaveRequest& request, Reply<v1::LeaveResponse> reply);
  void PlaceMarker(const v1::PlaceMarkerRequest& request, Reply<v1::PlaceMarkerResponse> reply);
  void ChangeConfig(const v1::ChangeConfigRequest& request, Reply<v1::ChangeConfigResponse> reply);
  void Finish(const v1::FinishRequest& request, Reply<v1::FinishResponse> reply);
  void Promote(const v1::PromoteRequest& request, Reply<v1::PromoteResponse> reply);
  // The streams of Replicate call this part directly.
  HostedJob& hosted_job() { return hosted_; }

  // The job with this layout, for a session. ABORTED if the variables have changed since, or if this process
  // never had this layout: the client must connect again.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobForLayout(uint64_t layout) const {
    return hosted_.JobForLayout(layout);
  }
  // For a follower: the job with this `run_id` and generation, whose sequencer runs here. UNAVAILABLE while
  // this server does not have that job.
  absl::StatusOr<std::shared_ptr<ActiveJob>> JobToFollow(const std::string& run_id,
                                                         int64_t generation) const {
    return hosted_.JobToFollow(run_id, generation);
  }
  // The initial values of the job with this layout are complete.
  void OnInitialised(uint64_t layout) { hosted_.OnInitialised(layout); }
  bool ready() const { return hosted_.view().state == v1::STATE_READY; }
  // The name of the worker with this number: "worker/3"; empty if there is none.
  std::string TaskOf(int worker) const;
  bool elastic() const;
  // ABORTED for a push of an incarnation that no server has given to the worker: the worker must join first.
  absl::Status CheckIncarnationGiven(int worker, uint64_t incarnation) const;
  // As Membership::StreamBroke().
  void PushStreamBroke(int worker, uint64_t incarnation);

  // The status of this server, without rates, which need two samples.
  v1::ServerStatus Status() const;
  Metrics& metrics() { return metrics_; }
  // Null if no trace is recorded.
  TraceRecorder* trace() const { return options_.trace; }
  // Identifies the process; differs each time it is started.
  uint64_t process() const { return options_.incarnation; }
  const net::DataEndpoint& data_endpoint() const { return options_.data_endpoint; }

  // Ends the leases and the waiting calls whose time is over. The owner calls it several times a second.
  void Tick();
  // With Options::replicates_by_calls: one step of replication. Called often, by one thread.
  void KeepUpBackups();
  // The process was paused: silence of other tasks during the pause does not count against them.
  void WokeUp();

  // How this task ends; nullopt while it continues. kDone after Finish(), and if an operator cancelled the
  // job. If the job has failed in another way: the exit code of the failure, once every client has been
  // notified.
  std::optional<ExitCode> ended() const { return hosted_.ended(); }
  // Answers every waiting and every later call with UNAVAILABLE.
  void Shutdown() { hosted_.Shutdown(); }

 private:
  std::string name() const { return absl::StrCat("ps/", options_.index); }
  ActiveJob::Host HostOfJobs();
  // FAILED_PRECONDITION for a client of another protocol or cluster, or that expects another shard.
  absl::Status CheckHandshake(const v1::ConnectRequest& request) const;
  // The job whose log is written here; FAILED_PRECONDITION if another server writes it.
  absl::StatusOr<std::shared_ptr<ActiveJob>> SequencedJob() const;
  // The clock of this server's trace, for clients that merge their timelines with it; 0 if no trace is
  // recorded.
  int64_t TraceClock() const;

  const Options options_;
  const Clock& clock_;
  const TimePoint started_;
  Metrics metrics_;
  HostedJob hosted_;
};

}  // namespace cairn::ps

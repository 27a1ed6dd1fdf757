// A job on one server: its shard, its members, and the job's sequencer or the connection to it. On the primary
// of a replicated job: also the replicator, which feeds the backup from all of them.
//
// Made by the server for each job that a chief creates, and shared by its sessions. Immutable, except for
// members that do their own locking.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/placement.h"
#include "ps/log/sequencer.h"
#include "ps/members/job_members.h"
#include "ps/replication/replicator.h"
#include "ps/replication/sequencer_feed.h"
#include "ps/replication/shard_feed.h"
#include "ps/shard/shard.h"
#include "ps/table/table_factory.h"

namespace cairn::ps {

// Opens a stream to the server with the backup of `shard`.
using BackupDialer = std::function<std::unique_ptr<ReplicationStream>(const std::string& address, int shard,
                                                                      ReplicationStreamHandler& handler)>;

class ActiveJob {
 public:
  // Connects a server to the job's sequencer, which runs on another server. `epoch`: as in Subscribe.epoch.
  using LeaderConnector =
      std::function<std::unique_ptr<SequencerPort>(const v1::Job&, std::shared_ptr<Shard>, int64_t epoch)>;
  // The server that the job is on.
  struct Host {
    int index = 0;                         // the shard's index
    LeaderConnector connect_to_leader{};   // required if index > 0 and the job trains
    int64_t memory_limit = 0;              // limit on MemoryNeeds, in bytes
    ThreadPool* thread_pool = nullptr;     // for updates; may be null
    FaultPoints* faults = nullptr;         // as in Shard::Options
    Metrics* metrics = nullptr;            // as in Shard::Options
    TraceRecorder* trace = nullptr;        // as in Shard::Options
    const TableFactory* tables = nullptr;  // null: this server stores no tables but the variables
    std::string seal_key{};                // CreateRequest.seal_key
    // The rest is used if the job has ps_replication.
    int host_index = 0;                    // index of the server that serves the shard
    uint64_t incarnation = 0;              // the shard's incarnation
    int64_t epoch = 0;                     // the shard's epoch
    BackupDialer connect_to_backup{};      // required
    const Clock* backups_clock = nullptr;  // Replicator::Options::clock
  };
  // INVALID_ARGUMENT, naming the field, for an invalid job. RESOURCE_EXHAUSTED if MemoryNeeds exceed the
  // limit, naming the limit and each of the needs.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Create(const v1::Job& job, std::vector<net::Slice> slices,
                                                           uint64_t layout, const Host& host);
  // Creates the backup of a shard of the job. The backup makes no decisions and sends no answers before
  // Promote().
  static absl::StatusOr<std::shared_ptr<ActiveJob>> CreateCopy(const v1::Job& job,
                                                               std::vector<net::Slice> slices,
                                                               uint64_t layout, const Host& host);
  ~ActiveJob();

  // Promotes a backup, once: the new primary continues where the old one stopped, and starts a backup on
  // another server. INTERNAL, without effect, if the backup's state is inconsistent.
  absl::Status Promote(int64_t epoch);
  // If the log waits on this server for gradients, reports that to the sequencer.
  void ReportWaiting();
  // Starts replication; to be called when the shard has values. Does nothing if there is no replicator.
  void StartReplicating();
  Replicator* replicator() { return replicator_.get(); }
  // The reason why this server must drop the shard; empty if it need not. A primary must if it is fenced, or
  // lacks gradients that no live worker can send again.
  std::string ReasonToDrop();
  // Stops waiting for the backup: pending answers fail. Repeated calls have no effect.
  void QuitReplicating();
  // As QuitReplicating(), and blocks like Replicator::Stop(). The destructor calls it too.
  void StopReplicating();
  // "ps/0 at host:2222": the server for the backup of this shard, whether or not it has one now.
  std::string backup_name() const;

  const v1::Job& job() const { return job_; }
  // Whether this server runs the job's sequencer, and the sequencer assigns data dynamically.
  bool hands_out_data() const { return job_.dynamic_sharding() && host_.index == 0 && sequencer_ != nullptr; }
  // All worker numbers of the job are below this limit.
  int most_workers() const;
  uint64_t layout() const { return layout_; }
  // The shard's index.
  int index() const { return host_.index; }
  // CreateRequest.seal_key; never sent to a client.
  const std::string& seal_key() const { return host_.seal_key; }
  int64_t memory_limit() const { return host_.memory_limit; }
  Shard& shard() { return *shard_; }
  const Shard& shard() const { return *shard_; }
  JobMembers& members() { return members_; }
  // Null in MODE_VARIABLES, and if the job's sequencer runs on another server.
  Sequencer* sequencer() { return sequencer_.get(); }

 private:
  ActiveJob(v1::Job job, uint64_t layout, Host host);
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Make(const v1::Job& job, std::vector<net::Slice> slices,
                                                         uint64_t layout, const Host& host);
  // RESOURCE_EXHAUSTED if the system does not provide the memory.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> MakeWithinMemory(const v1::Job& job,
                                                                     std::vector<net::Slice> slices,
                                                                     uint64_t layout, const Host& host);
  absl::Status Serve(int64_t first_index, int64_t epoch);
  void MakeReplicator(int64_t epoch);
  // The index of the server for the backup of this shard, whether or not it has one now.
  int other_host_index() const;

  const v1::Job job_;
  const uint64_t layout_;
  const Host host_;
  JobMembers members_;
  std::shared_ptr<Shard> shard_;
  std::unique_ptr<Sequencer> sequencer_;
  std::unique_ptr<Replicator> replicator_;
  std::unique_ptr<ShardFeed> shard_feed_;          // with a replicator
  std::unique_ptr<SequencerFeed> sequencer_feed_;  // with a sequencer and a replicator
  std::unique_ptr<SequencerPort> port_;
};

}  // namespace cairn::ps

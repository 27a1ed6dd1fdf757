// A job on one server: its shard, and the sequencer or the way to it.
//
// Made by the server for each job that a chief creates; sessions share it. Immutable but for the parts that
// synchronise themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/placement.h"
#include "ps/replicator.h"
#include "ps/sequencer.h"
#include "ps/shard.h"

namespace cairn::ps {

// What a job takes of a server's memory. With V bytes of values on this server, S slots of the optimizer and
// W workers:
//
//   needed = 2 V        the current values and the next version
//          + S V        the optimizer's slots
//          + (W + 1) V  a gradient of each worker, and one that arrives
//          + (1 + S) V  a snapshot's copy: a version that is still read, and its slots
//          + (3 + S) V  with ps_replication: means on their way to the copy on another server, and a state
//
// Where there is room for another (1 + S) V, a synchronous job's updates are made ahead (update_ahead.h).
//
// With ps_replication a job may take half of the memory: the other half is for the copy of another server's
// part.
struct MemoryNeeds {
  double values = 0, slots = 0, gradients = 0, snapshot = 0, replication = 0;  // bytes
  double total() const { return values + slots + gradients + snapshot + replication; }
};
MemoryNeeds MemoryNeedsOf(double value_bytes, int num_slots, int num_workers, bool replicated = false);

// Opens a stream to the server that keeps the copy of `part`.
using CopyDialer = std::function<std::unique_ptr<CopyStream>(const std::string& address, int part,
                                                             CopyStreamHandler& handler)>;

class ActiveJob {
 public:
  // Makes the port to the job's sequencer for a server that is not the sequencer. `epoch`: as
  // Subscribe.epoch.
  using LeaderConnector =
      std::function<std::unique_ptr<SequencerPort>(const v1::Job&, std::shared_ptr<Shard>, int64_t epoch)>;
  // The server that the job is on.
  struct Host {
    int index = 0;                        // of the part
    LeaderConnector connect_to_leader{};  // needed where index > 0 and something is trained
    int64_t memory_limit = 0;             // bytes, of what the job takes: MemoryNeeds
    Crew* crew = nullptr;                 // likewise
    FaultPoints* faults = nullptr;        // as Shard::Options
    Meters* meters = nullptr;             // likewise
    TraceRecorder* trace = nullptr;       // likewise
    std::string seal_key{};               // CreateRequest.seal_key
    // Where the job has ps_replication:
    int place = 0;                                       // index of the server that the part is on
    uint64_t incarnation = 0;                            // of the part
    int64_t epoch = 0;                                   // likewise
    CopyDialer connect_to_copy{};                        // needed
    std::function<void(Replicator&)> capture_members{};  // has the members' state sent
    const Clock* copies_clock = nullptr;                 // Replicator::Options::clock
  };
  // INVALID_ARGUMENT naming the field of a job that makes no sense; RESOURCE_EXHAUSTED when MemoryNeeds go
  // beyond the limit, naming both and what needs how much.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Create(const v1::Job& job, std::vector<net::Slice> slices,
                                                           uint64_t layout, const Host& host);
  // The same part of the same job, as a copy: it decides and answers nothing before TakePlace().
  static absl::StatusOr<std::shared_ptr<ActiveJob>> CreateCopy(const v1::Job& job,
                                                               std::vector<net::Slice> slices,
                                                               uint64_t layout, const Host& host);
  ~ActiveJob();

  // A copy's, once: goes on where the server was that it is the copy of, and keeps up a copy elsewhere.
  // INTERNAL, without effect, for a copy that is at odds with itself.
  absl::Status TakePlace(int64_t epoch);
  // Has the sequencer know that the log waits here for gradients, where it does.
  void ReportWaiting();
  // Begins to keep up a copy, once there are values. Null where there is none.
  void StartReplicating();
  Replicator* replicator() { return replicator_.get(); }
  // Nobody is answered any more who would have to wait for the copy. Repeats do nothing.
  void QuitReplicating();
  // Likewise. Blocks as Replicator::Stop(), and so does the destructor.
  void StopReplicating();
  // "ps/0 at host:2222": where the copy of this part is kept, or would be.
  std::string copy_name() const;

  const v1::Job& job() const { return job_; }
  // By its sequencer.
  bool hands_out_data() const { return job_.dynamic_sharding() && host_.index == 0 && sequencer_ != nullptr; }
  // Workers have numbers below it.
  int most_workers() const;
  uint64_t layout() const { return layout_; }
  // CreateRequest.seal_key; never told to a client.
  const std::string& seal_key() const { return host_.seal_key; }
  int64_t memory_limit() const { return host_.memory_limit; }
  Shard& shard() { return *shard_; }
  // Null in MODE_VARIABLES and where another server sequences.
  Sequencer* sequencer() { return sequencer_.get(); }

 private:
  ActiveJob(v1::Job job, uint64_t layout, Host host)
      : job_(std::move(job)), layout_(layout), host_(std::move(host)) {}
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Make(const v1::Job& job, std::vector<net::Slice> slices,
                                                         uint64_t layout, const Host& host);
  // RESOURCE_EXHAUSTED where the system has less memory than was promised.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> MakeWithinMemory(const v1::Job& job,
                                                                     std::vector<net::Slice> slices,
                                                                     uint64_t layout, const Host& host);
  absl::Status Serve(int64_t first_index, int64_t epoch);
  void MakeReplicator(int64_t epoch);
  // Index of the server that keeps the copy, or would.
  int other_place() const;

  const v1::Job job_;
  const uint64_t layout_;
  const Host host_;
  std::shared_ptr<Shard> shard_;
  std::unique_ptr<Sequencer> sequencer_;
  std::unique_ptr<Replicator> replicator_;
  std::unique_ptr<SequencerPort> port_;
};

}  // namespace cairn::ps

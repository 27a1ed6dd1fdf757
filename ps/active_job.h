// A job on one server: its shard, and the sequencer or the way to it.
//
// Made by the server for each job that a chief creates; sessions share it. Immutable but for the parts that
// synchronise themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/placement.h"
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
struct MemoryNeeds {
  double values = 0, slots = 0, gradients = 0, snapshot = 0;  // bytes
  double total() const { return values + slots + gradients + snapshot; }
};
MemoryNeeds MemoryNeedsOf(double value_bytes, int num_slots, int num_workers);

class ActiveJob {
 public:
  // Makes the port to the job's sequencer for a server that is not the sequencer.
  using LeaderConnector =
      std::function<std::unique_ptr<SequencerPort>(const v1::Job&, std::shared_ptr<Shard>)>;
  // The server that the job is on.
  struct Host {
    int index = 0;
    LeaderConnector connect_to_leader{};  // needed where index > 0 and something is trained
    int64_t memory_limit = 0;             // bytes, of what the job takes: MemoryNeeds
    Crew* crew = nullptr;                 // likewise
    FaultPoints* faults = nullptr;        // as Shard::Options
    Meters* meters = nullptr;             // likewise
    TraceRecorder* trace = nullptr;       // likewise
  };
  // INVALID_ARGUMENT naming the field of a job that makes no sense; RESOURCE_EXHAUSTED when MemoryNeeds go
  // beyond the limit, naming both and what needs how much.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Create(const v1::Job& job, std::vector<net::Slice> slices,
                                                           uint64_t layout, const Host& host);
  ~ActiveJob();

  const v1::Job& job() const { return job_; }
  // By its sequencer.
  bool hands_out_data() const { return job_.dynamic_sharding() && index_ == 0 && sequencer_ != nullptr; }
  // Workers have numbers below it.
  int most_workers() const;
  uint64_t layout() const { return layout_; }
  int64_t memory_limit() const { return memory_limit_; }
  Shard& shard() { return *shard_; }
  // Null in MODE_VARIABLES and where another server sequences.
  Sequencer* sequencer() { return sequencer_.get(); }

 private:
  ActiveJob(v1::Job job, uint64_t layout, const Host& host)
      : job_(std::move(job)), layout_(layout), index_(host.index), memory_limit_(host.memory_limit) {}

  const v1::Job job_;
  const uint64_t layout_;
  const int index_;             // of the server
  const int64_t memory_limit_;  // as Host
  std::shared_ptr<Shard> shard_;
  std::unique_ptr<Sequencer> sequencer_;
  std::unique_ptr<SequencerPort> port_;
};

}  // namespace cairn::ps

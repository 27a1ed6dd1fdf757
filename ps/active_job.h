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

class ActiveJob {
 public:
  // Makes the port to the job's sequencer for a server that is not the sequencer.
  using LeaderConnector =
      std::function<std::unique_ptr<SequencerPort>(const v1::Job&, std::shared_ptr<Shard>)>;
  // INVALID_ARGUMENT naming the field of a job that makes no sense; RESOURCE_EXHAUSTED when the variables,
  // two versions of them and the optimizer's slots, do not fit this machine's memory.
  static absl::StatusOr<std::shared_ptr<ActiveJob>> Create(const v1::Job& job, std::vector<net::Slice> slices,
                                                           uint64_t layout, int server,
                                                           const LeaderConnector& connect_to_leader);
  ~ActiveJob();

  const v1::Job& job() const { return job_; }
  uint64_t layout() const { return layout_; }
  Shard& shard() { return *shard_; }
  // Null in MODE_VARIABLES and where another server sequences.
  Sequencer* sequencer() { return sequencer_.get(); }

 private:
  ActiveJob(v1::Job job, uint64_t layout) : job_(std::move(job)), layout_(layout) {}

  const v1::Job job_;
  const uint64_t layout_;
  std::shared_ptr<Shard> shard_;
  std::unique_ptr<Sequencer> sequencer_;
  std::unique_ptr<SequencerPort> port_;
};

}  // namespace cairn::ps

// The agreement that each worker of a ring epoch makes when it knows the states of all workers: whose values
// all workers use, and whether their devices or the ring sum the gradients. A pure function of the states, so
// every worker gets the same result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "worker/allreduce/ring.h"

namespace cairn::allreduce {

struct Agreement {
  std::shared_ptr<Ring> ring;         // begins at the version of `source`
  std::vector<v1::RingState> states;  // [worker]
  int source = 0;                     // the worker whose values all workers use
  bool passes = false;                // some worker lacks these values: the source sends them
  int64_t ring_epoch = 0;             // the number of the ring epoch
  // The library with which the devices sum gradients ("NCCL 2.28.9"), in the group named by the first
  // worker's state. Empty: gradients are summed around the ring.
  std::string library{};
  // If some devices could sum gradients but not all: the reason for the ring.
  std::string why_ring{};

  // Whether this worker needs the values of the source.
  bool Needs(int worker) const;
};

// Makes an agreement from the states and the names of all workers, both indexed by worker. Does not set the
// ring and the ring epoch. The source is the worker with the highest version among those that have trained.
// If no worker has trained, the source is a worker that has the first values. Among equal workers, the source
// is the first. FAILED_PRECONDITION if no worker has values, or if two workers belong to different runs.
absl::StatusOr<Agreement> Agree(std::vector<v1::RingState> states, absl::Span<const std::string> names);

}  // namespace cairn::allreduce

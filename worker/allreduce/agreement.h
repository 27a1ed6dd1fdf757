// What the workers of a formation agree on when each knows the state of all: whose values hold, and who adds
// up gradients. Pure, and so the same on every worker.
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
  std::shared_ptr<Ring> ring;         // at the source's version
  std::vector<v1::RingState> states;  // [worker]
  int source = 0;                     // whose values all have, or are passed
  bool passes = false;                // somebody needs them
  int64_t formation = 0;
  // The devices add up by this, "NCCL 2.28.9", in the group that the first worker's state has. Empty: around
  // the ring.
  std::string library{};
  std::string why_ring{};  // where some devices could, but not all

  bool Needs(int worker) const;
};

// Of the states and the names [worker] of all: everything but the ring and the formation. The
// source is who
// is farthest of those that have trained, else the one that has the first values; of equals the first.
// FAILED_PRECONDITION when nobody has values, or two are of different runs.
absl::StatusOr<Agreement> Agree(std::vector<v1::RingState> states, absl::Span<const std::string> names);

}  // namespace cairn::allreduce

// The state of all servers at one point of the job: values, optimizer slots, and how far the job has come.
//
// It is taken in two steps. MarkSnapshot() says "here": in a job with one log that is one version on all
// servers, and each keeps its state from then on while updates go on; in other asynchronous jobs it is a
// point between two pushes on each server for itself. ReadSnapshot() fetches it, in any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/net/placement.h"
#include "worker/client/connection.h"
#include "worker/client/job_setup.h"

namespace cairn::client {

struct MarkedSnapshot {
  LearntJob job;
  std::string mark;
  v1::Progress progress;  // without the learning rate
};

struct Snapshot {
  struct Server {
    std::vector<net::Slice> slices;
    AlignedBuffer state;  // [1 + slots][elements of the slices]: values, then each slot
  };
  v1::Job job;
  v1::Progress progress;
  std::vector<std::string> slots;
  std::vector<Server> servers;
};

// `mark` is used once in the life of the job. A call per server that sequences, each with a limit of 10 s.
absl::StatusOr<MarkedSnapshot> MarkSnapshot(Connection& connection, const LearntJob& job, std::string mark);
// ABORTED when a server has taken another snapshot since, or has been restarted; DEADLINE_EXCEEDED when one
// takes longer than `timeout`.
absl::StatusOr<Snapshot> ReadSnapshot(Connection& connection, const MarkedSnapshot& marked, Duration timeout);

}  // namespace cairn::client

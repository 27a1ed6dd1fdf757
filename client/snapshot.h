// The state of all servers at one point of the job: values, optimizer slots and progress.
//
// A snapshot takes two steps. PlaceSnapshotMarker() sets the point: if all servers share one log, it is the
// same version on all of them, and each keeps its state at that version while updates continue; in other
// asynchronous jobs it is a point between two pushes on each server separately. ReadSnapshot() fetches the
// state, from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "client/job_setup.h"
#include "client/table_states.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"

namespace cairn::client {

struct SnapshotMarker {
  LearntJob job;
  std::string marker;
  v1::Progress progress;  // the learning rate and the settings of groups are not set
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

// `marker` must be unique in the life of the job. Calls ps/0 if the job has one round log, otherwise every
// server. The limit is 10 s per call.
absl::StatusOr<SnapshotMarker> PlaceSnapshotMarker(Connection& connection, const LearntJob& job,
                                                   std::string marker, const StopCheck& stopped = {});
// ABORTED if a server has taken another snapshot in the meantime, or has been restarted; DEADLINE_EXCEEDED if
// a server takes longer than `limit.timeout` and the transfer time of its state (net::TimeForBytes), or of a piece of a
// table. `tables` receives the states of the job's tables; null: they are not read.
absl::StatusOr<Snapshot> ReadSnapshot(Connection& connection, const SnapshotMarker& marked,
                                      const ReadLimit& limit, TableSink* tables = nullptr);

}  // namespace cairn::client

// A worker's membership of a job.
//
//   [chief: Initialise] ─► WaitReady ─► Join ─► steps ─► Leave ─► AwaitEnd or [chief: JobControl::Finish]
//                              ▲                  │
//                              └─── Reconnect ◄───┘ a task failed (ABORTED)
//
// All calls come from one thread, except Interrupt (any thread). Every call that waits has a time limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "client/job_setup.h"

namespace cairn::client {

// Where a worker begins after it has joined.
struct StartingPoint {
  int64_t position = 0;  // the number of this worker's batches that are in updates
  int64_t clock = 0;     // with bounded staleness: the number of pushes counted for this worker; otherwise 0
  int64_t version_offset = 0;  // v1::Progress::version_offset at the point where the job was resumed
};

class Membership {
 public:
  virtual ~Membership() = default;

  // For the chief: provides the first values, or those of a checkpoint, unless the job is running.
  virtual absl::Status Initialise(const v1::Job& job, StateSource& source) = 0;
  // Waits until the job is ready, and checks that it is `job`.
  virtual absl::Status WaitReady(const v1::Job& job) = 0;
  // Becomes a member of the job and fetches the values.
  virtual absl::Status Join() = 0;
  // As of the last Join().
  virtual StartingPoint start() const = 0;
  // After a call that failed with ABORTED: prepares for a new Initialise(), WaitReady() and Join().
  virtual absl::Status Reconnect() = 0;
  // Whether Reconnect() can recover from `failure`.
  virtual bool CanReconnectAfter(const absl::Status& failure) const = 0;
  // Makes all calls that wait, now and later, fail with `reason`; so do those of the other sides of the
  // exchange. Any thread.
  virtual void Interrupt(absl::Status reason) = 0;
  // Leaves the job, for `reason`. Best effort.
  virtual void Leave(v1::LeaveReason reason, const std::string& message) = 0;
  // For all workers but the chief, after Leave(): waits for the end of training.
  virtual absl::Status AwaitEnd() = 0;
};

}  // namespace cairn::client

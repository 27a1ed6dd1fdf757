// Keeps a worker's leases on all servers, and learns from the answers what the worker's calls should know:
// that the job has failed or is over, that the lease is lost, that another server serves a part now. From a
// thread for each server: who stands still, and is looked for elsewhere, costs no lease on the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "worker/client/connection.h"

namespace cairn::client {

class Heartbeats {
 public:
  struct Options {
    // Asked before each heartbeat to ps/0 by its thread, for those who look at any server. May be null.
    std::function<v1::WorkerReport()> report;
    // Called by a thread after each answer that may matter to who waits.
    std::function<void()> changed;
  };
  struct Member {
    int worker = 0;
    uint64_t incarnation = 0;
    Duration lease;  // four heartbeats of it
  };

  // `connection` outlives it.
  Heartbeats(Connection& connection, Options options)
      : connection_(connection), options_(std::move(options)) {}
  ~Heartbeats() { Stop(); }

  // Stop() comes first.
  void Start(const Member& member) ABSL_LOCKS_EXCLUDED(mutex_);
  // And forgets what was found. At most a heartbeat's limit, a quarter of the lease, and the time of a look
  // elsewhere.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  // As Stop(), but what was found stays, and nothing is waited for. Any thread.
  void StopSoon() ABSL_LOCKS_EXCLUDED(mutex_);

  // Any thread.
  void set_step(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // ABORTED: the lease is lost, or a server its variables; what the job failed with; TrainingIsOver().
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  // As ps/0 last said; may be empty.
  std::string waiting_for() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run(int server, const Member& member) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetReport(v1::WorkerReport report) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat(int server, const v1::HeartbeatRequest& request, std::chrono::milliseconds timeout)
      ABSL_LOCKS_EXCLUDED(mutex_);

  Connection& connection_;
  const Options options_;
  mutable Mutex mutex_;
  CondVar woken_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerReport report_ ABSL_GUARDED_BY(mutex_);  // the last
  std::vector<Thread> threads_;                      // [server]
};

}  // namespace cairn::client

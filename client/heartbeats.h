// Renews a worker's leases on all servers, and reports what it learns from the answers: the job has failed or
// is over, the lease has expired, or another server serves a shard now. Each server has a thread of its own.
// Therefore a server that does not respond, or the search for its backup, does not delay the heartbeats to
// the other servers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/job.pb.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn::client {

class Heartbeats {
 public:
  struct Options {
    // Called before each heartbeat to ps/0, by its thread. The report goes to every server, so that each of
    // them can display it. May be null.
    std::function<v1::WorkerReport()> report;
    // Called by the heartbeat threads after each answer that may end a wait.
    std::function<void()> changed;
  };
  struct Member {
    int worker = 0;
    uint64_t incarnation = 0;
    Duration lease;  // a heartbeat is sent four times per lease
    // The limit of the member's waits: heartbeats are also sent four times within it, so that an error at the limit
    // names whom the member waits for. Zero: no limit.
    Duration step_timeout{};

    Duration period() const;
  };

  // `connection` must outlive this object.
  Heartbeats(Connection& connection, Options options)
      : connection_(connection), options_(std::move(options)) {}
  ~Heartbeats() { Stop(); }

  // To be called only while stopped.
  void Start(const Member& member) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the threads and clears failure() and waiting_for(). Takes at most the timeout of one heartbeat (a
  // quarter of the lease) plus one search for a moved shard.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops the threads like Stop(), but does not wait for them and clears nothing. Any thread.
  void StopSoon() ABSL_LOCKS_EXCLUDED(mutex_);

  // Any thread.
  void set_step(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // The reason why the worker cannot continue. ABORTED: the lease has expired, or a server has lost its
  // variables. Otherwise the failure of the job, or TrainingIsOver().
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The workers that the round waits for, according to ps/0's last answer; may be empty.
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
  v1::WorkerReport report_ ABSL_GUARDED_BY(mutex_);  // the newest, for all servers
  std::vector<Thread> threads_;                      // [server]
};

}  // namespace cairn::client

// Sessions over sockets of their own, and shared memory for clients of the same host (common/net/direct).
//
// Beside the gRPC service: clients learn the addresses by Connect(), over gRPC, and make all calls there.
// What the gRPC service promises of sessions holds here too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/net/direct/listeners.h"
#include "ps/parts.h"

namespace cairn::ps {

class DirectSession;

class DirectService {
 public:
  struct Options {
    uint64_t incarnation = 0;   // the server's
    bool shared_memory = true;  // may clients bring shared memory?
    // Sessions at the same time; each has a thread and at most 2 MiB of shared memory, 1 MiB for our own
    // clients. One more is sent away, and goes to gRPC. Silent ones end (direct_service.cc).
    size_t most_sessions = 256;
  };
  // Serves `parts`, which must outlive it, at once.
  DirectService(Parts& parts, net::DirectListeners listeners, const Options& options);
  // As Stop() at once.
  ~DirectService();

  // Lets no more sessions begin, and those that there are end by themselves for so long.
  void Stop(std::chrono::milliseconds grace) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Listen();
  void Admit(net::DirectListeners::Connection connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the sessions that have ended.
  void Reap() ABSL_LOCKS_EXCLUDED(mutex_);

  Parts& parts_;
  const Options options_;
  net::DirectListeners listeners_;  // the listening thread's, then Stop()'s
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  std::vector<std::shared_ptr<DirectSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace cairn::ps

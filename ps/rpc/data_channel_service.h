// Sessions of clients, and replication streams of primaries, over the data channel: sockets, and shared memory
// within a host (common/net/data_channel).
//
// Complements the gRPC service: clients make all calls over gRPC, and Connect() returns the addresses of the
// data channel. Replicate() announces them to primaries. Streams have the same guarantees as in the gRPC
// service. Only callers that the gRPC service admits get the key without which a stream is refused. There is no
// data channel with TLS, and without TLS gRPC does not distinguish callers either.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/core/mutex.h"
#include "common/net/data_channel/listeners.h"
#include "common/system/thread.h"
#include "ps/job/hosted_shards.h"

namespace cairn::ps {

class DataChannelSession;

class DataChannelService {
 public:
  struct Options {
    uint64_t incarnation = 0;   // the server's incarnation
    bool shared_memory = true;  // whether clients may use shared memory
    // The maximum number of concurrent sessions. Each has a thread and at most 2 MiB of shared memory (1 MiB
    // for Cairn's clients). Further clients are refused and use gRPC. Idle sessions are closed
    // (data_channel_service.cc).
    size_t most_sessions = 256;
  };
  // Starts to serve `shards`, which must outlive the service.
  DataChannelService(HostedShards& shards, net::DataListeners listeners, const Options& options);
  // Stops without a grace period.
  ~DataChannelService();

  // Accepts no more sessions, and waits at most `grace` for the active ones to end.
  void Stop(std::chrono::milliseconds grace) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Listen();
  void Admit(net::DataListeners::Connection connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the sessions that have ended.
  void Reap() ABSL_LOCKS_EXCLUDED(mutex_);

  HostedShards& shards_;
  const Options options_;
  net::DataListeners listeners_;  // used by the listening thread, then by Stop()
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  std::vector<std::shared_ptr<DataChannelSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace cairn::ps

// Connects to all servers of a cluster, performs the handshake, and detects restarts. If the job has backups
// (ps_replication), the connection follows each shard to the server that currently serves it.
//
// Owned by the clients of this folder. Every call blocks, with a time limit; thread-safe after Open().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "client/transport/shard_search.h"
#include "client/transport/transport.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/cluster/placement.h"
#include "common/trace/trace.h"

namespace cairn::client {

struct ConnectionOptions {
  std::string task = "client";  // "worker/1": appears in messages of the servers
  uint64_t cluster_hash = 0;    // 0: not compared
  // How long to try to reach every server, and to wait for other tasks before training starts.
  Duration connect_timeout = std::chrono::seconds(300);
  // Called about every 10 s during a wait: "waiting for ps/1 at host:2222: connection refused". May be null.
  std::function<void(const std::string&)> say{};
  // Polled several times a second during a wait; true ends the wait with CANCELLED. May be null.
  std::function<bool()> stop{};
  // Makes a stub for `shard` on the server `host_index`, which has the shard's backup. Null: backups are not
  // used.
  using StubFactory = std::function<std::unique_ptr<ServerStub>(int shard, int host_index)>;
  StubFactory stub_factory{};
  TraceRecorder* trace = nullptr;  // may be null; receives samples of the servers' clocks
};

// Whether to repeat a request that failed with `status`: the server is unreachable, or its memory is taken by
// other requests.
bool IsWorthRepeating(const absl::Status& status);

class Connection {
 public:
  // Connects to all `stubs` [server], and retries while they are unreachable. UNAVAILABLE, with the servers
  // not reached in time and the reasons; FAILED_PRECONDITION if a handshake fails.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(std::vector<std::unique_ptr<ServerStub>> stubs,
                                                          ConnectionOptions options);
  // Connects to all servers again, as Open() does. Later calls expect the processes that answered this one.
  absl::Status Reach() ABSL_LOCKS_EXCLUDED(mutex_);

  int num_servers() const { return static_cast<int>(shards_.size()); }
  // stub(): where this server's shard is served, as far as known. home(): the server itself.
  ServerStub& stub(int server) { return shard(server).here(); }
  ServerStub& home(int server) { return *shard(server).home; }
  // Whether the server that had the shard's backup now serves the shard.
  bool away(int server) const { return shard(server).away; }
  // How often the shard has moved. Requests sent before a move are not answered.
  int moves(int server) const { return shard(server).moves; }
  int moves() const;  // the sum over all shards
  // Whether the job has backups.
  bool replicated() const { return replicated_; }
  const ConnectionOptions& options() const { return options_; }
  // Polls ConnectionOptions::stop. To be called by a thread that waits.
  bool stopped() const { return options_.stop && options_.stop(); }

  // Returns the current state of a server. ABORTED if the process is not the one reached before: it was
  // restarted and has lost its variables. If the server is unreachable and has a backup that is in sync, the
  // backup is promoted and answers. UNAVAILABLE or DEADLINE_EXCEEDED if no server serves the shard and one of
  // its hosts has not answered.
  absl::StatusOr<v1::ConnectResponse> Describe(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Describes all servers; retries while one is unreachable, at most for connect_timeout.
  absl::StatusOr<std::vector<v1::ConnectResponse>> DescribeAll();

  struct Awaited {
    int server = 0;
    v1::Condition condition = v1::CONDITION_UNSPECIFIED;
    int worker = 0;  // WaitRequest.worker
    Duration timeout;
  };
  // Waits until the condition holds on the server, at most for the timeout; reports every 10 s what is missing.
  // `watch` is called between polls; its error ends the wait. Returns the server's last answer.
  absl::StatusOr<v1::WaitResponse> WaitUntil(const Awaited& awaited, absl::FunctionRef<absl::Status()> watch);

  // Records a sample of the server's clock: the server answered a request that was sent at `sent`, and its
  // clock showed `clock_unix_nanos`. Records nothing if `clock_unix_nanos` is 0.
  void NoteClock(int server, TimePoint sent, int64_t clock_unix_nanos) const;
  // "ps/1 at host:2222"
  std::string NameOf(int server) const;
  // How long another server has served this server's shard; zero if this server serves it.
  Duration AwayFor(int server) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Report(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

 private:
  struct Shard {
    ServerStub& at(bool elsewhere) const { return elsewhere ? *backup : *home; }
    ServerStub& here() const { return at(away); }

    std::unique_ptr<ServerStub> home;
    std::unique_ptr<ServerStub> backup{};  // the stub for the server with the backup; null: none
    std::atomic<bool> away{false};         // `backup` serves the shard
    std::atomic<int> moves{0};
  };
  Connection(std::vector<std::unique_ptr<ServerStub>> stubs, ConnectionOptions options);
  Shard& shard(int server) { return shards_[static_cast<size_t>(server)]; }
  const Shard& shard(int server) const { return shards_[static_cast<size_t>(server)]; }
  absl::StatusOr<v1::ConnectResponse> Handshake(int server, bool away, const ShardSearch::Known& known,
                                                Timeout timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  ShardSearch::Known KnownOf(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Remembers which server serves the shard. `only_known`: as in ShardSearch::Options.
  void Settle(int server, const ShardSearch::Found& found, bool only_known) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ConnectResponse> Search(int server, const ShardSearch::Options& options)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // For Reach(): finds the server that serves the shard or should serve it.
  absl::Status Find(int server);

  const ConnectionOptions options_;
  std::deque<Shard> shards_;  // [server]; only the atomic members change
  std::atomic<bool> replicated_{false};
  mutable Mutex mutex_;
  std::vector<ShardSearch::Known> known_ ABSL_GUARDED_BY(mutex_);  // [server]
  std::vector<TimePoint> moved_at_ ABSL_GUARDED_BY(mutex_);        // [server]
};

// "20 of at most 300 s", for a wait that began at `start`.
std::string HowLong(TimePoint start, Duration limit);

// The slices in the servers' descriptions, [server]. Errors are those of net::Slice::FromProto.
absl::StatusOr<std::vector<std::vector<net::Slice>>> SlicesOf(
    const std::vector<v1::ConnectResponse>& described);

}  // namespace cairn::client

// All servers of a cluster: reached, shaken hands with, and watched for restarts.
//
// Owned by the clients of this folder. Calls block, each with a limit; thread-safe after Open().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/placement.h"
#include "worker/client/transport.h"

namespace cairn::client {

struct ConnectionOptions {
  std::string task = "client";  // "worker/1": for the servers' messages
  uint64_t cluster_hash = 0;    // 0: not compared
  // How long to try to reach every server, and to wait for what others must do before training starts.
  Duration connect_timeout = std::chrono::seconds(300);
  // What is said while it waits, about every 10 s: "waiting for ps/1 at host:2222: connection refused". May
  // be null.
  std::function<void(const std::string&)> say{};
  // Asked several times a second while it waits; true ends the wait with CANCELLED. May be null.
  std::function<bool()> stop{};
  TraceRecorder* trace = nullptr;  // may be; learns of the servers' clocks
};

class Connection {
 public:
  // Reaches all `stubs` [server], trying again while they cannot be reached. UNAVAILABLE naming the servers
  // that were not reached in time and why; FAILED_PRECONDITION when the handshake fails.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(std::vector<std::unique_ptr<ServerStub>> stubs,
                                                          ConnectionOptions options);
  // Likewise again: from now on the processes that are there now are the right ones.
  absl::Status Reach() ABSL_LOCKS_EXCLUDED(mutex_);

  int num_servers() const { return static_cast<int>(stubs_.size()); }
  ServerStub& stub(int server) { return *stubs_[static_cast<size_t>(server)]; }
  const ConnectionOptions& options() const { return options_; }

  // What a server says of itself now. ABORTED when it is not the process that we reached: it has been
  // restarted and has lost its variables.
  absl::StatusOr<v1::ConnectResponse> Describe(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries again while a server cannot be reached, at most for connect_timeout.
  absl::StatusOr<std::vector<v1::ConnectResponse>> DescribeAll();

  // Waits until the condition holds on `server`, at most for `timeout`, saying every 10 s what is missing.
  // `watch` runs between; its error ends the wait. `answer`: where the server's last one is wanted.
  absl::Status WaitUntil(int server, v1::Condition condition, int worker, Duration timeout,
                         absl::FunctionRef<absl::Status()> watch, v1::WaitResponse* answer = nullptr);

  // `server`, asked at `sent`, has just said that this was its clock; 0: it did not say.
  void NoteClock(int server, TimePoint sent, int64_t clock_unix_nanos) const;
  // "ps/1 at host:2222"
  std::string NameOf(int server) const;
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

 private:
  Connection(std::vector<std::unique_ptr<ServerStub>> stubs, ConnectionOptions options)
      : stubs_(std::move(stubs)), options_(std::move(options)), incarnations_(stubs_.size(), 0) {}
  bool stopped() const { return options_.stop && options_.stop(); }
  absl::Status Handshake(int server, v1::ConnectResponse* response);

  const std::vector<std::unique_ptr<ServerStub>> stubs_;  // [server]
  const ConnectionOptions options_;
  Mutex mutex_;
  std::vector<uint64_t> incarnations_ ABSL_GUARDED_BY(mutex_);  // [server]
};

// The slices that servers describe. Fails as net::Slice::FromProto does.
absl::StatusOr<std::vector<std::vector<net::Slice>>> SlicesOf(
    const std::vector<v1::ConnectResponse>& described);

}  // namespace cairn::client

// All servers of a cluster: reached, shaken hands with, and watched for restarts. Where the job has copies of
// their parts on other servers (ps_replication), a part is followed to where it is served.
//
// Owned by the clients of this folder. Calls block, each with a limit; thread-safe after Open().
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
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/placement.h"
#include "worker/client/part_search.h"
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
  // How to reach server `part`'s part of a job where server `place` has its copy. Null: copies are not looked
  // for.
  using PlaceStub = std::function<std::unique_ptr<ServerStub>(int part, int place)>;
  PlaceStub at_place{};
  TraceRecorder* trace = nullptr;  // may be; learns of the servers' clocks
};

// What may be asked again: the server cannot be reached, or has no memory for it while others take theirs.
bool IsWorthRepeating(const absl::Status& status);

class Connection {
 public:
  // Reaches all `stubs` [server], trying again while they cannot be reached. UNAVAILABLE naming the servers
  // that were not reached in time and why; FAILED_PRECONDITION when the handshake fails.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(std::vector<std::unique_ptr<ServerStub>> stubs,
                                                          ConnectionOptions options);
  // Likewise again: from now on the processes that are there now are the right ones.
  absl::Status Reach() ABSL_LOCKS_EXCLUDED(mutex_);

  int num_servers() const { return static_cast<int>(parts_.size()); }
  // Where the part of this server is served, as far as is known; home(): at the server itself.
  ServerStub& stub(int server) { return part(server).here(); }
  ServerStub& home(int server) { return *part(server).home; }
  bool away(int server) const { return part(server).away; }
  // How often the place has changed: what was asked elsewhere before will not be answered.
  int moves(int server) const { return part(server).moves; }
  int moves() const;  // of all
  // The job has copies.
  bool replicated() const { return replicated_; }
  const ConnectionOptions& options() const { return options_; }

  // What a server says of itself now. ABORTED when it is not the process that we reached: it has been
  // restarted and has lost its variables. Where these have a copy that is as good, and the server is not
  // there, the copy takes its place, and says so; UNAVAILABLE while that is not clear.
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
  // How long the part of this server has been away from home; zero where it is at home.
  Duration AwayFor(int server) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

 private:
  struct Part {
    ServerStub& at(bool elsewhere) const { return elsewhere ? *copy : *home; }
    ServerStub& here() const { return at(away); }

    std::unique_ptr<ServerStub> home;
    std::unique_ptr<ServerStub> copy{};  // the other place; null: none
    std::atomic<bool> away{false};       // it is served at the other place
    std::atomic<int> moves{0};
  };
  Connection(std::vector<std::unique_ptr<ServerStub>> stubs, ConnectionOptions options);
  Part& part(int server) { return parts_[static_cast<size_t>(server)]; }
  const Part& part(int server) const { return parts_[static_cast<size_t>(server)]; }
  bool stopped() const { return options_.stop && options_.stop(); }
  absl::StatusOr<v1::ConnectResponse> Handshake(int server, bool away, const PartSearch::Known& known,
                                                Timeout timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  PartSearch::Known KnownOf(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Remembers who serves the part. `only_known`: as PartSearch::Options.
  void Settle(int server, const PartSearch::Found& found, bool only_known) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::ConnectResponse> Search(int server, const PartSearch::Options& options)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // For Reach(): where the part is, or would be.
  absl::Status Find(int server);

  const ConnectionOptions options_;
  std::deque<Part> parts_;  // [server]; constant but for what is atomic
  std::atomic<bool> replicated_{false};
  mutable Mutex mutex_;
  std::vector<PartSearch::Known> known_ ABSL_GUARDED_BY(mutex_);  // [server]
  std::vector<TimePoint> moved_at_ ABSL_GUARDED_BY(mutex_);       // [server]
};

// "20 of at most 300 s", of a wait that began at `start`.
std::string HowLong(TimePoint start, Duration limit);

// The slices that servers describe. Fails as net::Slice::FromProto does.
absl::StatusOr<std::vector<std::vector<net::Slice>>> SlicesOf(
    const std::vector<v1::ConnectResponse>& described);

}  // namespace cairn::client

// A cluster of parameter servers in this process, reached without gRPC. Tests of the whole protocol run on
// it, also under ThreadSanitizer.
//
//   InProcessCluster cluster({.servers = 3});
//   auto connection = client::Connection::Open(cluster.Stubs("worker/0"), {.task = "worker/0"});
//
// Owned by the test, which destroys its clients first. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/transport.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"
#include "ps/job/server.h"
#include "tests/support/in_process_follow.h"
#include "tests/support/in_process_link.h"

namespace cairn::test {

struct ClusterOptions {
  int servers = 1;
  // The longest random delay of each frame, log entry and report.
  std::chrono::microseconds longest_delay{0};
  uint64_t seed = 1;
  int64_t memory_limit = int64_t{1} << 30;  // bytes, of each server
  // Null: the steady clock, and a thread that calls Tick(). Otherwise the test moves the clock and calls
  // Tick().
  const Clock* clock = nullptr;
  const ps::TableFactory* tables = nullptr;  // outlives the cluster; null: jobs have no tables
};

class InProcessCluster {
 public:
  explicit InProcessCluster(ClusterOptions options = {});
  ~InProcessCluster();

  int num_servers() const { return options_.servers; }
  std::shared_ptr<ps::Server> server(int index) { return slots_[static_cast<size_t>(index)]->Get(); }
  // The server of `shard` in the next process: its backup, or its primary after a promotion.
  std::shared_ptr<ps::Server> backup_of(int shard) { return backups_[static_cast<size_t>(shard)]->Get(); }

  // The stubs by which `client` ("worker/0") reaches the servers, by server. Every call returns stubs over
  // the same links.
  std::vector<std::unique_ptr<client::ServerStub>> Stubs(const std::string& client);
  // client::ConnectionOptions::stub_factory.
  std::function<std::unique_ptr<client::ServerStub>(int, int)> StubFactoryFor(const std::string& client);
  // The link from `client` to a server, which can inject faults.
  Link& link(const std::string& client, int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Breaks the link from a follower to ps/0.
  void BreakFollower(int server) { breakers_[static_cast<size_t>(server)]->Break(); }
  void LoseSums(int server, bool lose) { breakers_[static_cast<size_t>(server)]->LoseSums(lose); }
  int lost_sums(int server) const { return breakers_[static_cast<size_t>(server)]->lost_sums(); }

  // The link from `client` to the backup of a shard.
  Link& backup_link(const std::string& client, int shard) ABSL_LOCKS_EXCLUDED(mutex_);
  // The process ends as if killed, and all streams to it break.
  void Kill(int server);
  // Starts a new process without state at the same address.
  void Restart(int server);

  // Only if the test has passed its own clock.
  void Tick();

 private:
  int After(int server) const { return (server + 1) % options_.servers; }
  std::shared_ptr<ps::Server> MakeServer(int shard, int host_index, uint64_t incarnation);
  Link& LinkTo(const std::string& client, int key, const ServerSlot& slot, int host_index)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const ClusterOptions options_;
  const SteadyClock steady_;
  const Clock& clock_;
  std::vector<std::unique_ptr<ServerSlot>> slots_;        // [server]
  std::vector<std::unique_ptr<ServerSlot>> backups_;      // [shard], in the next process
  std::vector<std::unique_ptr<FollowBreaker>> breakers_;  // [server]

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, int>, std::unique_ptr<Link>> links_
      ABSL_GUARDED_BY(mutex_);  // (client, server)
  Thread ticker_;
};

}  // namespace cairn::test

#include "tests/support/in_process_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "tests/support/in_process_backup.h"

namespace cairn::test {
namespace {

constexpr auto kTick = std::chrono::milliseconds(10);

}  // namespace

InProcessCluster::InProcessCluster(ClusterOptions options)
    : options_(options), clock_(options.clock != nullptr ? *options.clock : steady_) {
  for (int i = 0; i < options_.servers; ++i) {
    slots_.push_back(std::make_unique<ServerSlot>());
    backups_.push_back(std::make_unique<ServerSlot>());
    breakers_.push_back(std::make_unique<FollowBreaker>());
  }
  for (int i = 0; i < options_.servers; ++i) Restart(i);
  if (options_.clock != nullptr) return;
  ticker_ = Thread("ticker", [this] {
    for (;;) {
      Tick();
      MutexLock lock(mutex_);
      if (!stopping_) changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kTick);
      if (stopping_) return;
    }
  });
}

InProcessCluster::~InProcessCluster() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  ticker_.Join();
  for (int i = options_.servers - 1; i >= 0; --i) Kill(i);
}

void InProcessCluster::Kill(int server) {
  const int previous = (server + options_.servers - 1) % options_.servers;
  const std::shared_ptr<ps::Server> gone = slots_[static_cast<size_t>(server)]->Set(nullptr);
  const std::shared_ptr<ps::Server> gone_too = backups_[static_cast<size_t>(previous)]->Set(nullptr);
  if (gone == nullptr) return;
  {
    MutexLock lock(mutex_);
    for (auto& [way, link] : links_) {
      if (way.second == server || way.second == options_.servers + previous) link->Break();
    }
  }
  const bool may_lead = server == 0 || previous == 0;
  for (int follower = 0; follower < options_.servers; ++follower) {
    if (may_lead || follower == server || follower == previous) BreakFollower(follower);
  }
  gone->Shutdown();
  if (gone_too != nullptr) gone_too->Shutdown();
}

void InProcessCluster::Restart(int server) {
  Kill(server);
  uint64_t incarnation;
  {
    MutexLock lock(mutex_);
    // The numbers are far apart, like the random ones of real processes.
    incarnation = ++last_incarnation_ << 32;
  }
  const int previous = (server + options_.servers - 1) % options_.servers;
  if (previous != server) {
    backups_[static_cast<size_t>(previous)]->Set(MakeServer(previous, server, incarnation));
  }
  slots_[static_cast<size_t>(server)]->Set(MakeServer(server, server, incarnation));
}

std::shared_ptr<ps::Server> InProcessCluster::MakeServer(int shard, int host_index, uint64_t incarnation) {
  const DelayOptions delay = {.seed = options_.seed + static_cast<uint64_t>(shard),
                              .longest = options_.longest_delay};
  ps::Server::Options options = {
      .index = shard,
      .host_index = host_index,
      .cluster_hash = 0,
      .incarnation = incarnation,
      .connect_to_leader =
          [this, shard, delay](const v1::Job& job, std::shared_ptr<ps::Shard> follower, int64_t epoch) {
            std::vector<const ServerSlot*> leaders = {slots_[0].get()};
            if (job.ps_replication() > 0) leaders.push_back(backups_[0].get());
            return FollowInProcess(std::move(leaders), shard, job, std::move(follower), epoch, delay,
                                   *breakers_[static_cast<size_t>(shard)]);
          },
      .connect_to_backup =
          [this, host_index, delay](const std::string&, int of, ps::ReplicationStreamHandler& handler) {
            return DialBackupInProcess(
                host_index == of ? *backups_[static_cast<size_t>(of)] : *slots_[static_cast<size_t>(of)],
                delay, handler);
          },
      .memory_limit = options_.memory_limit,
      .tables = options_.tables};
  return std::make_shared<ps::Server>(std::move(options), clock_);
}

std::vector<std::unique_ptr<client::ServerStub>> InProcessCluster::Stubs(const std::string& client) {
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  for (int i = 0; i < options_.servers; ++i) stubs.push_back(link(client, i).NewStub());
  return stubs;
}

std::function<std::unique_ptr<client::ServerStub>(int, int)> InProcessCluster::StubFactoryFor(
    const std::string& client) {
  return [this, client](int shard, int) { return backup_link(client, shard).NewStub(); };
}

Link& InProcessCluster::link(const std::string& client, int server) {
  return LinkTo(client, server, *slots_[static_cast<size_t>(server)], server);
}

Link& InProcessCluster::backup_link(const std::string& client, int shard) {
  return LinkTo(client, options_.servers + shard, *backups_[static_cast<size_t>(shard)], After(shard));
}

Link& InProcessCluster::LinkTo(const std::string& client, int key, const ServerSlot& slot, int host_index) {
  MutexLock lock(mutex_);
  std::unique_ptr<Link>& link = links_[{client, key}];
  if (link == nullptr) {
    const uint64_t seed = options_.seed ^ StreamOf(absl::StrCat(client, "/", key));
    link = std::make_unique<Link>(slot, absl::StrCat("host", host_index, ":2222"),
                                  DelayOptions{.seed = seed, .longest = options_.longest_delay});
  }
  return *link;
}

void InProcessCluster::Tick() {
  for (const auto* slots : {&slots_, &backups_}) {
    for (const auto& slot : *slots) {
      if (const std::shared_ptr<ps::Server> server = slot->Get()) server->Tick();
    }
  }
}

}  // namespace cairn::test

#include "tests/support/in_process_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"

namespace cairn::test {
namespace {

constexpr auto kTick = std::chrono::milliseconds(10);

}  // namespace

InProcessCluster::InProcessCluster(ClusterOptions options)
    : options_(options), clock_(options.clock != nullptr ? *options.clock : steady_) {
  for (int i = 0; i < options_.servers; ++i) {
    slots_.push_back(std::make_unique<ServerSlot>());
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
  const std::shared_ptr<ps::Server> gone = slots_[static_cast<size_t>(server)]->Set(nullptr);
  if (gone == nullptr) return;
  {
    MutexLock lock(mutex_);
    for (auto& [way, link] : links_) {
      if (way.second == server) link->Break();
    }
  }
  if (server > 0) BreakFollower(server);
  for (int follower = 1; server == 0 && follower < options_.servers; ++follower) BreakFollower(follower);
  gone->Shutdown();
}

void InProcessCluster::Restart(int server) {
  Kill(server);
  uint64_t incarnation;
  {
    MutexLock lock(mutex_);
    // Far apart, as the random ones of real processes are.
    incarnation = ++last_incarnation_ << 32;
  }
  const DelayOptions delay = {.seed = options_.seed + static_cast<uint64_t>(server),
                              .longest = options_.longest_delay};
  ps::Server::Options options = {
      .index = server,
      .cluster_hash = 0,
      .incarnation = incarnation,
      .connect_to_leader =
          [this, server, delay](const v1::Job& job, std::shared_ptr<ps::Shard> shard) {
            return FollowInProcess(*slots_[0], server, job, std::move(shard), delay,
                                   *breakers_[static_cast<size_t>(server)]);
          },
      .memory_limit = options_.memory_limit};
  slots_[static_cast<size_t>(server)]->Set(std::make_shared<ps::Server>(std::move(options), clock_));
}

std::vector<std::unique_ptr<client::ServerStub>> InProcessCluster::Stubs(const std::string& client) {
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  for (int i = 0; i < options_.servers; ++i) stubs.push_back(link(client, i).NewStub());
  return stubs;
}

Link& InProcessCluster::link(const std::string& client, int server) {
  MutexLock lock(mutex_);
  std::unique_ptr<Link>& link = links_[{client, server}];
  if (link == nullptr) {
    const uint64_t seed = options_.seed ^ StreamOf(absl::StrCat(client, "/", server));
    link = std::make_unique<Link>(*slots_[static_cast<size_t>(server)], absl::StrCat("host", server, ":2222"),
                                  DelayOptions{.seed = seed, .longest = options_.longest_delay});
  }
  return *link;
}

void InProcessCluster::Tick() {
  for (const auto& slot : slots_) {
    if (const std::shared_ptr<ps::Server> server = slot->Get()) server->Tick();
  }
}

}  // namespace cairn::test

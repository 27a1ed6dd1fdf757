// The servers of a simulated job, and the links to them. Each server runs in a process that may die, restart
// without state, or pause. A process has its own shard and, with replication, the backup of the previous
// shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/shard_search.h"
#include "common/core/random.h"
#include "ps/job/hosted_shards.h"
#include "ps/job/server.h"
#include "ps/table/embedding/embedding_tables.h"
#include "tests/simulation/network.h"
#include "tests/simulation/setting.h"
#include "tests/support/fake_clock.h"

namespace cairn::simulation {

inline constexpr double kCall = 10;  // seconds, as the client's limit of a call

// State that all parts of a simulation share.
struct Simulation {
  explicit Simulation(uint64_t seed)
      : random(seed, "protocol"), setting(random, /*rows=*/seed % 2 == 0), events(clock) {}

  const Rules& rules() const { return setting.rules; }
  double Delay() { return setting.longest_delay * random.NextUniform(); }
  double UpTo(double seconds) { return seconds * random.NextUniform(); }
  int Below(int bound) { return static_cast<int>(random.NextBelow(static_cast<uint32_t>(bound))); }

  Random random;
  const Setting setting;
  test::FakeClock clock;
  Events events;
  int64_t deferred = 0;  // answers
};

// A link that breaks when a process dies, or at random.
class Link {
 public:
  virtual ~Link() = default;
  virtual bool Touches(int process) const = 0;
  virtual void Break() = 0;
};

class Fleet {
 public:
  // `on_promoted` is called when a backup was promoted, so the previous primary is fenced.
  Fleet(Simulation& simulation, std::function<void()> on_promoted);
  ~Fleet();

  int size() const { return static_cast<int>(processes_.size()); }
  // The process of a shard: its own or, with `away`, that of its backup.
  int ProcessOf(int shard, bool away) const { return away ? (shard + 1) % size() : shard; }
  // Null: the process is down, or has nothing of the shard.
  ps::Server* At(int shard, bool away) const;
  // The server that stores the shard's backup. UNAVAILABLE if its process is down.
  absl::StatusOr<ps::Server*> ForBackup(int shard, bool away);
  bool IsUp(int process) const { return Of(process).up; }
  double AwakeAt(int process) const { return Of(process).paused_until; }
  // Answers that servers give now are lost, because their process dies.
  bool dying() const { return dying_; }

  // The process ends as if killed, and the links to it break.
  void Kill(int process);
  void Restart(int process);
  void Pause(int process, double seconds);
  void BreakOneLink();
  void Tick();
  // Runs one step of replication on every server that is awake.
  void KeepUpBackups();
  void Add(std::weak_ptr<Link> link) { links_.push_back(std::move(link)); }
  void Promote(ps::Server& backup, const v1::PromoteRequest& request, ps::Reply<v1::PromoteResponse> reply);

  // Passes a server, if it is up, an event that needs no answer.
  void Post(int shard, bool away, std::function<void(ps::Server&)> what);
  // Calls a server, and then `then` with its answer: UNAVAILABLE if the server is down, DEADLINE_EXCEEDED
  // after `limit` seconds.
  template <typename Response>
  void Call(int shard, bool away, double limit, std::function<void(ps::Server&, ps::Reply<Response>)> call,
            std::function<void(absl::StatusOr<Response>)> then) {
    auto settled = std::make_shared<bool>(false);
    std::function<void(absl::StatusOr<Response>)> tell =
        [settled, then = std::move(then)](absl::StatusOr<Response> answer) {
          if (!std::exchange(*settled, true)) then(std::move(answer));
        };
    Events& events = simulation_.events;
    events.After(limit, [tell] { tell(absl::DeadlineExceededError("no answer in time")); });
    Arrive(events.now() + simulation_.Delay(), ProcessOf(shard, away), [this, shard, away, call, tell] {
      ps::Server* const server = At(shard, away);
      const auto answer = [this, tell](absl::StatusOr<Response> response) {
        if (dying_) response = absl::UnavailableError("the connection broke");
        simulation_.events.After(simulation_.Delay(), [tell, response] { tell(response); });
      };
      if (server != nullptr) {
        call(*server, answer);
      } else if (!IsUp(ProcessOf(shard, away))) {
        answer(absl::UnavailableError("failed to connect: Connection refused"));
      } else if (std::is_same_v<Response, v1::ConnectResponse> ||
                 std::is_same_v<Response, v1::PromoteResponse>) {  // as ps/rpc/service.cc
        answer(absl::NotFoundError("the shard is not here"));
      } else {
        answer(Of(ProcessOf(shard, away)).shards->Serving(shard).status());
      }
    });
  }

 private:
  struct Process {
    bool up = false;
    double paused_until = 0;
    std::unique_ptr<ps::HostedShards> shards;
  };
  const Process& Of(int process) const { return processes_[static_cast<size_t>(process)]; }
  Process& Of(int process) { return processes_[static_cast<size_t>(process)]; }
  // `incarnation`: of the process.
  std::unique_ptr<ps::Server> MakeServer(int shard, int process, uint64_t incarnation);
  void Arrive(double at, int process, std::function<void()> what);

  Simulation& simulation_;
  const std::function<void()> on_promoted_;
  std::vector<std::weak_ptr<Link>> links_;
  const ps::EmbeddingTables tables_{/*thread_pool=*/nullptr};  // outlives the processes
  std::vector<Process> processes_;
  uint64_t last_incarnation_ = 0;
  bool dying_ = false;
};

// The server of a shard, as far as a client knows.
struct Known {
  bool away = false;
  client::ShardSearch::Known server{};
};
struct Found {
  v1::ConnectResponse response;
  Known known;
};
// client::Connection's search for a shard. FindAny() is its Reach(): any server that has the job, otherwise
// the home server. Describe() accepts only the known server, if there is one: ABORTED if that server's
// variables are lost.
using OnFound = std::function<void(absl::StatusOr<Found>)>;
void FindAny(Simulation& simulation, Fleet& fleet, int shard, const Known& known, OnFound then);
void Describe(Simulation& simulation, Fleet& fleet, int shard, const Known& known, OnFound then);

}  // namespace cairn::simulation

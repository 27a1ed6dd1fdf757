#include "tests/simulation/simulation.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "tests/simulation/chief.h"
#include "tests/simulation/fleet.h"
#include "tests/simulation/histories.h"
#include "tests/simulation/table_rows.h"
#include "tests/simulation/workers.h"

namespace cairn::simulation {
namespace {

constexpr double kTick = 0.5;
constexpr double kLongest = 4 * 3600;  // a job that lasts longer hangs

class World {
 public:
  explicit World(uint64_t seed)
      : simulation_(seed),
        histories_(simulation_.rules()),
        fleet_(simulation_, [this] { histories_.newest().ServerLost(); }),
        workers_(simulation_, fleet_, histories_),
        chief_(simulation_, fleet_, histories_) {
    outcome_.setting = simulation_.setting.ToText();
    chief_.Begin();
    workers_.Begin();
    events().After(kTick, [this] { Tick(); });
    if (simulation_.setting.chaos_every > 0) events().After(1, [this] { Fault(); });
  }

  Outcome Run() {
    double quiet_since = -1;
    while (histories_.sound()) {
      events().Step();
      ++outcome_.events;
      if (simulation_.rules().copies) fleet_.KeepUpBackups();
      if (histories_.begun()) histories_.newest().EventEnded(LeaderVersion());
      if (!Quiet()) {
        quiet_since = -1;
        if (events().now() > kLongest) {
          histories_.newest().Violation(
              absl::StrCat("the job hangs in generation ", histories_.generation()));
        }
      } else if (quiet_since < 0) {
        quiet_since = events().now();
      } else if (events().now() > quiet_since + 3 * kLease) {
        break;  // leases are over, and so is every message's way
      }
    }
    if (histories_.sound()) End();
    outcome_.violations = histories_.violations();
    outcome_.coverage = histories_.coverage();
    outcome_.deferred = simulation_.deferred;
    return outcome_;
  }

 private:
  Events& events() { return simulation_.events; }
  bool replaced() const { return simulation_.setting.server_faults == ServerFaults::kReplaced; }

  // The version of ps/0; with replication it is not visible from outside.
  std::optional<int64_t> LeaderVersion() const {
    ps::Server* const leader = fleet_.At(0, false);
    if (leader == nullptr || replaced() || !histories_.begun()) return std::nullopt;
    const auto job = leader->JobToFollow("simulated", histories_.generation());
    if (!job.ok()) return std::nullopt;
    return (*job)->shard().store().current().version;
  }

  // --- Faults ---

  void Fault() {
    if (events().now() > simulation_.setting.chaos_until) return;
    events().After(2 * simulation_.UpTo(simulation_.setting.chaos_every), [this] { Fault(); });
    const int kind = simulation_.Below(8);
    if (kind < 2) {
      HarmWorker();
    } else if (kind < 6) {
      ++outcome_.breaks;
      workers_.BreakOne();
    } else if (simulation_.setting.server_faults == ServerFaults::kNone || simulation_.Below(3) > 0) {
      ++outcome_.breaks;
      fleet_.BreakOneLink();
    } else {
      HarmServer();
    }
  }
  void HarmWorker() {
    if (simulation_.Below(2) == 0) {
      outcome_.deaths += workers_.KillOne() ? 1 : 0;
    } else {
      ++outcome_.pauses;
      workers_.PauseOne(simulation_.UpTo(2.5 * kLease));
    }
  }
  void HarmServer() {
    const int process = simulation_.Below(fleet_.size());
    if (!fleet_.IsUp(process) || !histories_.begun()) return;
    if (simulation_.Below(2) == 0) HarmWorker();  // both run on one host
    if (replaced() && simulation_.Below(3) == 0) {
      ++outcome_.servers_paused;
      histories_.newest().ServerLost();  // its backup may have been promoted when it wakes
      fleet_.Pause(process, simulation_.UpTo(2.5 * kLease));
      return;
    }
    ++outcome_.servers_killed;
    histories_.newest().ServerLost();
    fleet_.Kill(process);
    workers_.ProcessDied(process);
    const double longest =
        simulation_.Below(2) == 0 ? 2 : 2 * kLease;  // at once by a supervisor, or elsewhere
    events().After(simulation_.UpTo(longest), [this, process] { fleet_.Restart(process); });
  }

  // --- The servers' clock ---

  void Tick() {
    const bool leads = LeaderVersion().has_value() || (replaced() && histories_.begun());
    if (leads) workers_.Expire(events().now(), chief_.ReturnIsOver(events().now()));
    fleet_.Tick();
    CheckFailures();
    events().After(replaced() ? kTick / 2 : kTick, [this] { Tick(); });
  }
  // No server may say that the job has failed.
  void CheckFailures() {
    if (!histories_.begun()) return;
    for (int shard = 0; shard < fleet_.size(); ++shard) {
      for (const bool away : {false, true}) {
        if (away && !replaced()) continue;
        const v1::ConnectResponse response = Describe(shard, away);
        if (response.state() == v1::STATE_FAILED) {
          histories_.newest().Violation(absl::StrCat("ps/", shard, " fails: ", response.failure()));
        }
      }
    }
  }
  v1::ConnectResponse Describe(int shard, bool away) {
    v1::ConnectResponse described;
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_server(shard);
    if (ps::Server* const server = fleet_.At(shard, away); server != nullptr) {
      server->Connect(request, [&](absl::StatusOr<v1::ConnectResponse> response) {
        if (response.ok()) described = *std::move(response);
      });
    }
    return described;
  }

  bool Quiet() const {
    // No task is going to be restarted.
    return !workers_.any_up() && simulation_.events.now() > simulation_.setting.chaos_until + 3 * kLease &&
           chief_.all_ready();
  }

  void End() {
    Checker::Final final;
    for (int shard = 0; shard < fleet_.size(); ++shard) {
      v1::ConnectResponse served;
      bool away = false;
      for (const bool there : {false, true}) {
        if (there && !replaced()) continue;
        const v1::ConnectResponse response = Describe(shard, there);
        if (response.state() != v1::STATE_READY) continue;
        if (served.state() == v1::STATE_READY) {
          histories_.newest().Violation(absl::StrCat("ps/", shard, "'s shard is served by two servers"));
        }
        served = response;
        away = there;
      }
      if (served.state() != v1::STATE_READY) {
        histories_.newest().Violation(
            absl::StrCat("ps/", shard, "'s shard is served by no server at the end"));
        return;
      }
      outcome_.places_taken += served.epoch();
      const auto job = fleet_.At(shard, away)->JobForLayout(served.layout());
      final.versions.push_back(served.version());
      final.values.push_back((*job)->shard().store().current().data->data()[0]);
      if (shard == 0) final.counters = served.counters();
      if (!simulation_.rules().rows) continue;
      const auto rows = (*job)->shard().tables()[1].ReadRows(RowIds(shard, fleet_.size()));
      final.rows.emplace_back(rows->elements->span().begin(), rows->elements->span().end());
    }
    histories_.newest().Ended(final);
  }

  Simulation simulation_;
  Histories histories_;
  Fleet fleet_;
  Workers workers_;
  Chief chief_;
  Outcome outcome_;
};

}  // namespace

Outcome Simulate(uint64_t seed) {
  return World(seed).Run();
}

}  // namespace cairn::simulation

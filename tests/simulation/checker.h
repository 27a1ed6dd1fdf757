// Watches one history of a job and checks the rules of updates, independently of the code: which pushes may
// be in an update, every push is answered once and counted once, servers agree, and each example is used
// once.
//
// A history lasts until all servers are rolled back together; the next one begins at the snapshot. With
// replication no server is rolled back: answers that were given before a server died stay valid.
//
// It uses only the servers' external events: members that join and leave, pushes that arrive, and answers.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/v1/parameter_server.pb.h"
#include "ps/shard/shard.h"
#include "tests/simulation/example_set.h"

namespace cairn::simulation {

// "push 3.1.17": worker, incarnation, step.
std::string Name(const ps::PushKey& key);

struct Rules {
  v1::Mode mode = v1::MODE_SYNC;
  int servers = 1;
  int workers = 1;
  int replicas_to_aggregate = 0;  // 0: all that live
  int64_t max_staleness = -1;     // none
  int64_t final_version = 0;      // none
  // True: values change by the mean gradient itself. False: they change by norms, for which a decided round
  // waits, so the live workers may have changed when it is applied.
  bool rate_one = true;
  // With norms: the limit for the norm of all servers' mean gradients together. With LAMB values change
  // otherwise.
  double clipnorm = 0.5;
  bool layerwise = false;
  // Each server's shard has a backup that may be promoted. Decisions that a server had not announced may be
  // lost with it and be made differently, so only announced decisions are checked.
  bool copies = false;
  // With dynamic sharding, the examples of an epoch; 0: static sharding.
  int64_t num_examples = 0;
  int64_t epochs = 0;    // of it; 0: until the final version
  bool elastic = false;  // rounds wait for worker 0 alone before they begin
  bool rows = false;     // the job has a table (table_rows.h)
};

// The start of a history.
struct Start {
  std::vector<float> values{};  // [server]; empty: 0
  v1::Progress progress{};
  std::vector<ps::ReceivedTables> tables{};  // [server] the states of the tables; empty: no rows
};

class Checker {
 public:
  explicit Checker(const Rules& rules, Start start = {});

  // The violations found, in order.
  const std::vector<std::string>& violations() const { return violations_; }
  void Violation(std::string what);

  // --- Members, as ps/0 sees them ---
  void Joined(int worker, uint64_t incarnation, int64_t clock);
  void Left(int worker);
  // It has not left, although Left() was called.
  void StillLives(int worker, uint64_t incarnation) { live_[worker] = incarnation; }
  std::optional<uint64_t> LiveIncarnation(int worker) const;

  // --- Pushes ---
  // A push is complete at `server`; `value` is the gradient of its only element. Returns the number of this
  // arrival.
  int64_t Arrived(int server, const ps::Gradient& gradient, float value);
  // The push is answered. `value`: the element's value, if the answer has values.
  void Answered(int64_t arrival, const ps::PushResult& result, std::optional<float> value);
  // The push will never be answered: its server has died, or was rolled back.
  void Lost(int64_t arrival);
  // The servers took a push whose gradient was computed from values of `history`, in history `here`.
  void ComputedIn(const ps::PushKey& key, int64_t history, int64_t here);
  // Values of `version` were read on `server` in any other way.
  void Read(int server, int64_t version, float value);

  // To be called after every event. `version`: that of ps/0; nullopt while it is down.
  void EventEnded(std::optional<int64_t> version);

  // --- Snapshots and rollback ---
  // A snapshot is complete, with the progress at the barrier and the values of each server.
  // `rows`: [server] [row].
  void Snapshot(const v1::Progress& progress, const std::vector<float>& values,
                const std::vector<std::vector<float>>& rows = {});
  // A server has lost its variables, or was replaced by its backup, so state that only it had is lost.
  void ServerLost() { server_lost_ = true; }
  // The rows of a server's table at a version: in an answer, a read or a snapshot.
  void ReadRows(int server, int64_t version, const std::vector<float>& rows);
  // All servers restart from `to`, which ends this history.
  void RollBack(const Start& to);

  // The state at the end, when nothing is under way any more.
  struct Final {
    std::vector<int64_t> versions;           // [server]
    std::vector<float> values;               // [server]
    v1::Counters counters;                   // of ps/0
    std::vector<std::vector<float>> rows{};  // [server] [row]
  };
  void Ended(const Final& final);

  // --- Counts of events, to be added up over many histories ---
  struct Coverage {
    int64_t updates = 0, accepted = 0, stale = 0, rejected = 0, finished = 0, duplicate = 0;
    int64_t examples = 0, snapshots = 0, rolled_back = 0;
    Coverage& operator+=(const Coverage& other);
  };
  const Coverage& coverage() const { return coverage_; }

 private:
  struct Arrival {
    int server;
    ps::PushKey key;
    bool answered = false, lost = false;
  };
  struct Push {
    ps::Gradient gradient;  // as it came to ps/0, or first
    float value = 0;
    std::map<int, v1::Outcome> outcome;  // [server], of the first answer
    std::map<int, int64_t> version;      // [server], of that
  };
  struct Update {
    std::set<ps::PushKey> keys;
  };

  bool sync() const { return rules_.mode == v1::MODE_SYNC; }
  bool one_log() const { return rules_.mode != v1::MODE_ASYNC || !rules_.rate_one; }
  void CheckAccepted(const Arrival& arrival, const Push& push, const ps::PushResult& result);
  void CheckRound(int64_t version);
  void CheckMean(int64_t version);
  void CheckExamples(const Push& push);
  bool all_examples_used() const;
  void CheckBound(const ps::PushKey& key);
  void CheckValue(int server, int64_t version, float value);
  // The rows change by the mean of the gradients that contain them, and row 0 as the variable.
  void CheckRowsOf(int64_t version);
  void CheckFinalRows(const Final& final);
  std::vector<float> StartRows(int server) const;
  // Parts of Ended().
  void CheckAllAnswered();
  void CheckSameOnAll(const Final& final);
  void CheckServer(int server, const Final& final);
  void CheckCounters(const v1::Counters& counters);
  // The outcome of a push on `server` at the end; nullopt: its answer was lost with a server.
  std::optional<bool> AcceptedOn(const Push& push, int server) const;

  const Rules rules_;
  const Start start_;
  std::vector<std::string> violations_;
  Coverage coverage_;

  std::set<int> heard_of_;
  std::map<int, uint64_t> live_, live_before_;  // [worker]: incarnation; now, and before this event
  // [worker], with bounded staleness: as far as its answers say; one that waits for an answer is one further.
  std::map<int, int64_t> clocks_;
  std::vector<Arrival> arrivals_;
  std::map<ps::PushKey, Push> pushes_;
  std::vector<std::map<int64_t, Update>> updates_;  // [server][version]
  std::map<int64_t, float> values_;                 // [version], where there is one log
  std::map<int64_t, std::vector<float>> rows_;      // [version] [row], as values_
  std::vector<ps::PushKey> gone_on_;  // with bounded staleness: answered by this event, before the end
  int64_t version_ = 0;               // of ps/0
  ExampleSet used_;                   // examples in updates of ps/0, through all epochs
  std::map<int64_t, std::vector<float>> snapshots_;                   // [version][server]
  std::map<int64_t, std::vector<std::vector<float>>> row_snapshots_;  // [version][server][row]
  std::set<std::pair<ps::PushKey, int>> lost_;  // (push, server) whose answer went with the server
  bool server_lost_ = false;
};

}  // namespace cairn::simulation

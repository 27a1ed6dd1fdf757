// Watches one history of a job and knows the rules of updating, not the code: who may be in an update, that
// every push is answered once and counted once, that servers agree, that each example is used once.
//
// A history lasts until all servers are set back together; the next one begins where the snapshot was. With
// copies none is set back: what was told before a server died holds after it.
//
// It believes only what passes through the servers' doors: members that join and leave, pushes that come,
// answers that go. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/v1/parameter_server.pb.h"
#include "ps/shard.h"
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
  // Values move by the mean gradient itself. Otherwise by norms, for which a round that is decided waits: who
  // lives may have changed when it is applied.
  bool rate_one = true;
  // By norms: what those of all servers' mean gradients together may be. Under LAMB values move otherwise.
  double clipnorm = 0.5;
  bool layerwise = false;
  // Each server's part has a copy that may take its place. What a server had decided and told nobody may go
  // with it, and be decided otherwise: what is checked is what was told.
  bool copies = false;
  // Of data that is handed out: the examples of an epoch; 0: it is not.
  int64_t num_examples = 0;
  int64_t epochs = 0;    // of it; 0: until the final version
  bool elastic = false;  // rounds wait for worker 0 alone before they begin
};

// Where a history begins.
struct Start {
  std::vector<float> values{};  // [server]; empty: 0
  v1::Progress progress{};
};

class Checker {
 public:
  explicit Checker(const Rules& rules, Start start = {});

  // What was found broken, in order.
  const std::vector<std::string>& violations() const { return violations_; }
  void Violation(std::string what);

  // --- Members, as ps/0 hears of them ---
  void Joined(int worker, uint64_t incarnation, int64_t clock);
  void Left(int worker);
  // It has not left, contrary to what was said.
  void StillLives(int worker, uint64_t incarnation) { live_[worker] = incarnation; }
  std::optional<uint64_t> LiveIncarnation(int worker) const;

  // --- Pushes ---
  // One has come whole to `server`; `value` is the gradient of its one element. The number is this arrival's.
  int64_t Arrived(int server, const ps::Gradient& gradient, float value);
  // It is answered. `value`: of the element, when values came.
  void Answered(int64_t arrival, const ps::PushResult& result, std::optional<float> value);
  // It never will be: its server has died, or been set back.
  void Lost(int64_t arrival);
  // A push was taken here whose gradient was computed from values of `history`, counted as this one is.
  void ComputedIn(const ps::PushKey& key, int64_t history, int64_t here);
  // Values of `version` were read on `server` in any other way.
  void Read(int server, int64_t version, float value);

  // After every event: what ps/0 stands at; none while it is not there.
  void EventEnded(std::optional<int64_t> version);

  // --- Snapshots, and being set back ---
  // One is complete: what the mark told, and what it left on each server.
  void Snapshot(const v1::Progress& progress, const std::vector<float>& values);
  // A server has lost its variables, or its place to a backup: what it held for nobody else is lost.
  void ServerLost() { server_lost_ = true; }
  // All servers begin anew there: this history is over.
  void SetBack(const Start& to);

  // At the end, when nothing moves any more.
  struct Final {
    std::vector<int64_t> versions;  // [server]
    std::vector<float> values;      // [server]
    v1::Counters counters;          // of ps/0
  };
  void Ended(const Final& final);

  // --- What happened, for the sum over many histories ---
  struct Coverage {
    int64_t updates = 0, accepted = 0, stale = 0, rejected = 0, finished = 0, duplicate = 0;
    int64_t examples = 0, snapshots = 0, set_back = 0;
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
  // Of Ended().
  void CheckAllAnswered();
  void CheckSameOnAll(const Final& final);
  void CheckServer(int server, const Final& final);
  void CheckCounters(const v1::Counters& counters);
  // What is known of a push on `server` at the end: none when its answer went with a server.
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
  std::vector<ps::PushKey> gone_on_;  // with bounded staleness: answered by this event, before the end
  int64_t version_ = 0;               // of ps/0
  ExampleSet used_;                   // examples in updates of ps/0, through all epochs
  std::map<int64_t, std::vector<float>> snapshots_;  // [version][server]
  std::set<std::pair<ps::PushKey, int>> lost_;       // (push, server) whose answer went with the server
  bool server_lost_ = false;
};

}  // namespace cairn::simulation

// The chief of a simulated job, which behaves like the client library: it gives the servers the job, takes
// snapshots, and rolls all servers back to the newest one when a server has lost its state. Sometimes it dies
// on the way, and continues from the state of the servers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/fleet.h"
#include "tests/simulation/histories.h"

namespace cairn::simulation {

class Chief {
 public:
  Chief(Simulation& simulation, Fleet& fleet, Histories& histories)
      : simulation_(simulation),
        fleet_(fleet),
        histories_(histories),
        known_(static_cast<size_t>(fleet.size())) {}

  void Begin() { Look(); }
  // True: at the last check all servers were ready, in one generation.
  bool all_ready() const { return all_ready_; }
  // True: workers that have not returned by now are lost.
  bool ReturnIsOver(double now) const;

 private:
  struct Shard {
    v1::ConnectResponse described;
    float value = 0;  // of the snapshot that is being read
    ps::ReceivedTables tables{};
  };

  void Look();
  void LookAgain(double seconds);
  // A call has failed. As with the client, the chief's process ends, and is restarted if that may help.
  void End(const absl::Status& status);
  void Reach(int shard);
  void DescribeAll(const std::function<void()>& then);
  void DescribeOne(int shard, const std::function<void()>& then);
  // For Reach() and DescribeOne(): calls `again` later after a transient failure; else the chief ends.
  void QueryAgain(const absl::Status& failure, std::function<void()> again);
  void Survey();
  void Create(int shard);
  void CheckCreated();
  void Write();
  void TakeSnapshot();
  void PlaceMarker(int shard);
  void ReadAll();
  v1::CreateRequest Request(int shard) const;
  // The states of a server's tables at the newest snapshot.
  ps::ReceivedTables TablesOf(int server) const;
  bool away(int shard) const { return known_[static_cast<size_t>(shard)].away; }
  bool one_log() const { return simulation_.rules().mode != v1::MODE_ASYNC || !simulation_.rules().rate_one; }
  // Does `what`, unless this look is over: the chief has given it up, or has died.
  template <typename Argument>
  std::function<void(Argument)> IfLooking(std::function<void(Argument)> what) {
    return [this, look = look_, what = std::move(what)](Argument argument) {
      if (look == look_) what(std::move(argument));
    };
  }

  Simulation& simulation_;
  Fleet& fleet_;
  Histories& histories_;
  int64_t look_ = 0;
  size_t waiting_ = 0;         // for so many servers' answers
  std::vector<Known> known_;   // [server]
  std::vector<Shard> shards_;  // [server], of this look
  bool all_ready_ = false;
  Start newest_;             // snapshot; at first, where the job begins
  int64_t generation_ = -1;  // that it has begun to create
  bool written_ = false;     // it has given all servers their values, of generation_
  int64_t num_seal_keys_ = 0;
  int64_t num_markers_ = 0;
  std::string marker_;
  v1::Progress progress_;  // at the snapshot marker
  int64_t ready_ = -1;     // the generation that ps/0 has its values of ...
  double ready_at_ = 0;    // ... since then
};

}  // namespace cairn::simulation

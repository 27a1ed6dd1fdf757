// The workers of a simulated job, which behave like the client library: they find the servers, join, pull,
// compute, push, and repeat calls without an answer. They die, pause and return.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "client/job_end.h"
#include "tests/simulation/fleet.h"
#include "tests/simulation/histories.h"

namespace cairn::simulation {

class Workers {
 public:
  Workers(Simulation& simulation, Fleet& fleet, Histories& histories);

  void Begin();
  // A server's process died, so the streams to it break.
  void ProcessDied(int process);
  // A worker's stream to a server breaks.
  void BreakOne();
  // False: the worker was not running.
  bool KillOne();
  void PauseOne(double seconds);
  bool any_up() const;
  // ps/0 has ended the leases of workers that sent no heartbeat, if it takes part in the current history.
  void Expire(double now, bool absent_too);

 private:
  struct Worker {
    int64_t life = 0;  // what was planned for another is void
    bool up = false;
    double paused_until = 0;
    int steps_left = 0;
    uint64_t incarnation = 0;
    std::string incarnation_seal{};
    uint64_t process = 0;  // another after each start
    int64_t generation = 0;
    int64_t step = 0, pulls = 0, position = 0;
    std::vector<Known> known;       // [server]
    int moves = 0;                  // times that a shard was found on its other server
    std::vector<uint64_t> layouts;  // [server]
    std::vector<bool> looking;      // [server] searching for the server that serves its shard now
    std::vector<int64_t> versions;  // [server] of what it computes from
    v1::Work work;
    bool pushing = false;
    ps::Gradient gradient;
    float value = 0;
    struct Answer {
      ps::PushResult result;
      std::optional<float> value;
      v1::Work work;
    };
    std::vector<std::optional<Answer>> answers;  // [server]
    std::vector<Way> up_way, down_way;           // [server]: its streams
    std::vector<int> pushes;                     // [server]: on the stream that is open
  };
  struct Read {
    int64_t version;
    bool finished;
    float value;
  };

  Worker& At(int w) { return workers_[static_cast<size_t>(w)]; }
  const Rules& rules() const { return simulation_.rules(); }
  double Delay() { return simulation_.Delay(); }
  bool one_log() const { return rules().mode != v1::MODE_ASYNC || !rules().rate_one; }
  bool handed_out() const { return rules().num_examples > 0; }
  bool away(int w, int s) { return At(w).known[static_cast<size_t>(s)].away; }
  int num_servers() const { return rules().servers; }

  // Does `what` as this life of the worker: not when it has died, and later when it pauses.
  void Act(int w, int64_t life, std::function<void()> what);
  void Later(int w, double seconds, std::function<void()> what);
  template <typename Argument>
  std::function<void(Argument)> As(int w, std::function<void(Argument)> what) {
    return [this, w, life = At(w).life, what = std::move(what)](Argument argument) {
      Act(w, life, [what, argument] { what(argument); });
    };
  }
  void Die(int w);
  // The worker's host is lost, so no server sees that its streams have broken.
  void Vanish(int w);
  void LeftUnseen(int w);
  // Starts the worker's process, without state.
  void Start(int w);
  // Acts as the trainer does after a failure from which joining again may recover.
  void Rejoin(int w);
  void FindServers(int w);
  void AwaitJob(int w);
  void Join(int w, int s);
  // At ps/0, which decides whether the process may be this worker; in `life` of it.
  void JoinFirst(int w, int64_t life, ps::Server& server, const v1::JoinRequest& request,
                 ps::Reply<v1::JoinResponse> reply);
  void Heartbeat(int w);
  void Learn(int w, int s, const Found& found);
  // A step of the protocol failed. As TrainingClient::Persist(): finds all servers, and then does it `again`,
  // joins again, or ends for good, which is a violation.
  void Persist(int w, const absl::Status& failure, std::function<void()> again);
  void EndForGood(int w, const absl::Status& failure);
  // A server did not take the push, or its heartbeat failed. As StepPushes: finds it, and repeats the push.
  void Recover(int w, int s, const absl::Status& failure);
  void Pull(int w);
  void ReadFrom(int w, int s, int64_t pull);
  // Reads the rows of a server as they are now, for the checker.
  void ReadRowsOf(ps::Shard& shard, int s, int64_t generation);
  std::shared_ptr<const ps::WantedRows> RowsToRead(ps::Shard& shard, int s) const;
  // Adds the gradients of rows to a push.
  void AddRows(ps::OpenPush& push, int s, const ps::PushKey& key, float value) const;
  void OnRead(int w, int s, int64_t pull, const Read& read);
  void Proceed(int w);
  void AwaitWork(int w);
  void Compute(int w);
  void Push(int w, int s);
  void TakePush(int w, int s, const ps::Gradient& gradient, float value, int64_t life, int64_t generation);
  void OnAnswer(int w, int s, int64_t step, const Worker::Answer& answer);
  void Leave(int w);
  // As client::AwaitEnd(), after Leave(): joins again when the job is rolled back.
  void AwaitEnd(int w, client::Silence silence);
  void BreakStream(int w, int s);

  Simulation& simulation_;
  Fleet& fleet_;
  Histories& histories_;
  std::vector<Worker> workers_;
  std::vector<double> heard_;  // [worker]: when ps/0 last heard of it
};

}  // namespace cairn::simulation

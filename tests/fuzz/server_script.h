// Plays a Script to a parameter server: calls and streams of clients, and messages of followers and of a
// leader.
#pragma once

#include <memory>

#include "ps/job/server.h"
#include "ps/rpc/session.h"
#include "script.pb.h"
#include "tests/support/fake_clock.h"

namespace cairn::fuzz {

// A job of two elements, trained by SGD, with one worker and so many servers.
v1::CreateRequest SmallJob(v1::Mode mode, int servers);

// One server in this process. It must answer each call once, whatever the script.
class ServerPlayer {
 public:
  // `index`: 0, or 1 for a follower, whose leader is the script. `host_index`: the index of its process, if
  // different; the server may then keep a backup. `tables`: makes the tables of its jobs, and outlives the player.
  explicit ServerPlayer(int index, int host_index = -1, const ps::TableFactory* tables = nullptr);
  ~ServerPlayer();

  // Creates the job, writes its values, and has worker 0 join.
  void MakeReady(const v1::CreateRequest& request);
  void Play(const Script& script);
  ps::Server& server() { return server_; }
  // True: the state needs more memory than this test allows. False for malformed input, which the server must
  // refuse.
  static bool IsTooLarge(const v1::ReplicationOrigin& origin);

 private:
  class Sink;
  class Log;
  template <typename Request, typename Response>
  void Call(void (ps::Server::*method)(const Request&, ps::Reply<Response>), const Request& request);
  void PlayStep(const Step& step);
  void Create(const v1::CreateRequest& request);
  void OnFollowerMessage(const v1::FollowerMessage& message);
  void OnDecision(const v1::Decision& decision);
  void NewSession();

  test::FakeClock clock_;
  ps::Server server_;
  std::shared_ptr<Sink> sink_;
  std::unique_ptr<ps::Session> session_;
  std::shared_ptr<ps::Shard> follower_shard_;  // of the last job, where index is 1
  std::shared_ptr<ps::ActiveJob> followed_;    // what ps/1 subscribed to
  std::shared_ptr<Log> log_;
  int64_t calls_ = 0, answers_ = 0;
};

}  // namespace cairn::fuzz

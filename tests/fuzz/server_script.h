// Plays a Script to a parameter server: what its clients call and stream, and what followers and a leader
// send.
#pragma once

#include <memory>

#include "ps/server.h"
#include "ps/session.h"
#include "script.pb.h"
#include "tests/support/fake_clock.h"

namespace cairn::fuzz {

// Two elements, trained by SGD, of one worker on so many servers.
v1::CreateRequest SmallJob(v1::Mode mode, int servers);

// One server in this process. Whatever comes, it answers each call once.
class ServerPlayer {
 public:
  // `index`: 0, or 1 for a follower, whose leader is the script. `place`: of the process that it is in, when
  // that is another; it then may keep a copy.
  explicit ServerPlayer(int index, int place = -1);
  ~ServerPlayer();

  // Creates the job, writes its values, and has worker 0 join.
  void MakeReady(const v1::CreateRequest& request);
  void Play(const Script& script);
  ps::Server& server() { return server_; }
  // More than there shall be memory for here; what makes no sense is not.
  static bool IsTooLarge(const v1::CopyOrigin& origin);

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

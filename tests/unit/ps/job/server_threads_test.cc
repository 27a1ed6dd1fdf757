// The calls of a server from several threads. Run it under ThreadSanitizer.
#include <atomic>

#include "common/system/thread.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using ServerThreadsTest = ServerTest;

TEST_F(ServerThreadsTest, MembersJoinAndLeaveWhileTheJobIsReplaced) {
  constexpr int kGenerations = 300;
  MakeReady();
  std::atomic<bool> over{false};
  {
    const auto train = [&](int worker) {
      while (!over) {
        const auto member = Join(worker);
        if (!member.ok()) continue;
        Heartbeat(worker, member->incarnation()).IgnoreError();
        v1::LeaveRequest leave;
        leave.set_worker(worker);
        leave.set_incarnation(member->incarnation());
        EXPECT_TRUE(Call(server_, &Server::Leave, leave).ok());
      }
    };
    const auto watch = [&] {
      WaitAnswer answer;
      while (!over) {
        server_.Tick();
        EXPECT_EQ(server_.Status().members_size(), 2);
        EXPECT_EQ(server_.TaskOf(1), "worker/1");
        EXPECT_EQ(server_.ended(), std::nullopt);
        Wait(v1::CONDITION_ALL_OTHERS_LEFT, 0, answer);
        EXPECT_TRUE(answer.has_value());
      }
    };
    const Thread first("worker/0", [&] { train(0); }), second("worker/1", [&] { train(1); }),
        watcher("watcher", watch);
    for (int generation = 1; generation <= kGenerations; ++generation) {
      v1::CreateRequest next = TrainingJob();
      next.mutable_job()->set_generation(generation);
      const auto created = Create(next);
      EXPECT_EQ(created.status(), absl::OkStatus());
      if (!created.ok()) break;
      server_.OnInitialised(created->layout());
    }
    over = true;
  }
  EXPECT_TRUE(Finish().ok());
  EXPECT_EQ(server_.ended(), ExitCode::kDone);
}

}  // namespace
}  // namespace cairn::ps

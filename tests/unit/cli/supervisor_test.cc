#include "cli/launcher/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "tests/unit/cli/launched.h"

namespace cairn::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kServer = Supervisor::Role::kServer;
constexpr auto kChief = Supervisor::Role::kChief;
constexpr auto kWorker = Supervisor::Role::kWorker;

// Sleeps until a signal stops it.
constexpr char kRuns[] = "echo ready >&2; exec sleep 1000";
// Ignores all signals except SIGKILL, and so do its children.
constexpr char kStubborn[] = "trap '' TERM INT; echo ready >&2; sleep 1000; sleep 1000";

TEST(Supervisor, AllTasksDoneIsSuccess) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kChief, "worker/0", "exit 0"),
                     Script(kWorker, "worker/1", "exit 0")},
                    {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.log(), "");
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, TheFirstFailureDeterminesTheExitCode) {
  Launched launched({Script(kServer, "ps/0", kRuns), Script(kChief, "worker/0", kRuns),
                     Script(kWorker, "worker/1", "echo first >&2; echo 'no variable x' >&2; exit 3")},
                    {});
  EXPECT_EQ(launched.Wait(), 3);
  const std::string log = launched.log(), fault = "no variable x\n";
  // A line of another task may come between.
  EXPECT_LT(log.find("[worker/1] first\n"), log.find("[worker/1] no variable x\n")) << log;
  EXPECT_THAT(log, HasSubstr(fault));
  EXPECT_EQ(log.find(fault), log.rfind(fault)) << "shown once";
  EXPECT_THAT(log, HasSubstr("cairn train: worker/1 ended with exit code 3; stopping the rest\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ATaskKilledByAnotherProcessIsRetryable) {
  Launched launched({Script(kServer, "ps/0", "kill -KILL $$"), Script(kChief, "worker/0", kRuns)}, {});
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(), HasSubstr("cairn train: ps/0 was killed by SIGKILL; stopping the rest\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

// The first run of the task creates a file, by which the second run recognizes that it is a restart.
std::string DiesOnce(const std::string& file, const std::string& then) {
  return "if [ -e " + file + " ]; then " + then + "; else touch " + file + "; kill -KILL $$; fi";
}

TEST(Supervisor, AFailedTaskIsRestarted) {
  const std::string file = testing::TempDir() + "/restarted", second = file + ".again";
  for (const std::string& old : {file, second}) std::remove(old.c_str());
  Supervisor::Task server = Script(kServer, "ps/0", DiesOnce(file, "touch " + second));
  server.restarts = 1;
  Launched launched(
      {server, Script(kChief, "worker/0", "while [ ! -e " + second + " ]; do sleep 0.01; done")}, {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.log(), "cairn train: ps/0 was killed by SIGKILL: restarting it (1 of 1)\n");
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(FaultFilter, AnErrorIsShownOnceAlthoughSeveralTasksLogIt) {
  FaultFilter filter;
  EXPECT_EQ(filter.Pass("E1126 01:23:54.326 ps/0] the job failed: worker/1 failed: the loss is nan\n"),
            "E1126 01:23:54.326 ps/0] the job failed: worker/1 failed: the loss is nan\n");
  EXPECT_EQ(
      filter.Pass(
          "E1126 01:23:54.400 worker/1] the loss is nan\n[ps/1] E1126 01:23:54.326 ps/1] the job failed: "
          "worker/1 failed: the loss is nan\nW1126 01:23:54.400 worker/1] the loss is nan\n"),
      "W1126 01:23:54.400 worker/1] the loss is nan\n");
  EXPECT_EQ(filter.Pass("E1126 01:23:54.400 worker/1] disk failed: it is full\nplain\nplain\n"),
            "E1126 01:23:54.400 worker/1] disk failed: it is full\nplain\nplain\n");
  EXPECT_EQ(filter.Pass(""), "");
}

TEST(Supervisor, ATaskThatKeepsFailingWithoutProgressIsNotRestartedForEver) {
  Supervisor::Task server = Script(kServer, "ps/0", "exit 138");
  server.restarts = 100;
  Supervisor::Options options;
  options.progress = [] { return 7; };
  options.max_fruitless_restarts = 2;
  Launched launched({server, Script(kChief, "worker/0", kRuns)}, options);
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(), HasSubstr("restarting it (3 of 100)\n"));
  EXPECT_THAT(launched.log(),
              HasSubstr("ps/0 ended with exit code 138, the 4th time in a row without a step of the job; "));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, TasksAreRestartedWhileTheJobMakesProgress) {
  Supervisor::Task server = Script(kServer, "ps/0", "exit 138");
  server.restarts = 4;
  Supervisor::Options options;
  options.progress = [step = 0]() mutable { return ++step; };
  options.max_fruitless_restarts = 0;
  Launched launched({server, Script(kChief, "worker/0", kRuns)}, options);
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(), HasSubstr("restarting it (4 of 4)\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ATaskIsRestartedAtMostAsOftenAsAllowed) {
  Supervisor::Task server = Script(kServer, "ps/0", "exit 138");
  server.restarts = 2;
  Launched launched({server, Script(kChief, "worker/0", kRuns)}, {});
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(), HasSubstr("restarting it (2 of 2)\n"));
  EXPECT_THAT(launched.log(), HasSubstr("cairn train: ps/0 ended with exit code 138; stopping the rest\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ATaskWithAPermanentFailureIsNotRestarted) {
  Supervisor::Task worker = Script(kWorker, "worker/1", "exit 3");
  worker.restarts = 5;
  Launched launched({worker, Script(kChief, "worker/0", kRuns)}, {});
  EXPECT_EQ(launched.Wait(), 3);
}

TEST(Supervisor, AWorkerThatMayLeaveDoesNotFailTheRun) {
  const std::string file = testing::TempDir() + "/may_leave";
  std::remove(file.c_str());
  Supervisor::Task told = Script(kWorker, "worker/1", "exit 143"),
                   lost = Script(kWorker, "worker/2", "exit 138"),
                   broken = Script(kWorker, "worker/3",
                                   "while [ ! -e " + file + " ]; do sleep 0.01; done; exit 1");
  told.may_leave = lost.may_leave = broken.may_leave = true;
  Launched launched({told, lost, broken, Script(kChief, "worker/0", kRuns)}, {});
  EXPECT_TRUE(launched.Logs("worker/1 ended with exit code 143: it has left the job"));
  EXPECT_TRUE(launched.Logs("worker/2 ended with exit code 138: it has left the job"));
  std::ofstream(file) << "go on";
  EXPECT_EQ(launched.Wait(), 1) << "what is broken would break the next one too";
}

TEST(Supervisor, ATaskThatCrashesIsAPermanentFailure) {
  Launched launched({Script(kServer, "ps/0", kRuns), Script(kChief, "worker/0", "kill -SEGV $$")}, {});
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.log(), HasSubstr("cairn train: worker/0 was killed by SIGSEGV; stopping the rest\n"));
}

TEST(Supervisor, AServerThatEndsEarlyIsAFailureEvenWithZero) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kChief, "worker/0", kRuns)},
                    {.end_limit = milliseconds(200)});
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.log(), HasSubstr("cairn train: worker/0 still ran 0.2 s after the end of ps/0"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, AWorkerThatFailsAfterAnEarlyServerIsNamedWithTheServer) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kChief, "worker/0", "sleep 0.5; exit 138")},
                    {});
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(),
              HasSubstr("ps/0 ended before the workers, then worker/0 ended with exit code 138"));
}

TEST(Supervisor, AtTheRegularEndAServerMayExitBeforeTheWorkers) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kChief, "worker/0", "sleep 0.3; exit 0")}, {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.log(), "");
}

TEST(Supervisor, AFailureAfterTheChiefHasFinishedDoesNotFailTheRun) {
  const std::string file = testing::TempDir() + "/chief_done";
  std::remove(file.c_str());
  const std::string until_reaped = "while [ ! -s " + file +
                                   " ]; do sleep 0.01; done; while [ -e /proc/$(cat " + file +
                                   ") ]; do sleep 0.01; done; ";
  Launched launched({Script(kServer, "ps/0", until_reaped + "kill -KILL $$"),
                     Script(kWorker, "worker/1", until_reaped + "exit 138"),
                     Script(kChief, "worker/0", "echo $$ > " + file)},
                    {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(),
              HasSubstr("ps/0 was killed by SIGKILL after the chief's end: nothing is lost\n"));
  EXPECT_THAT(launched.log(),
              HasSubstr("worker/1 ended with exit code 138 after the chief's end: nothing is"));
}

TEST(Supervisor, AChiefKilledAfterItStoppedAServerDoesNotFailTheRun) {
  const std::string file = testing::TempDir() + "/server_ended";
  std::remove(file.c_str());
  Launched launched({Script(kServer, "ps/0", "echo $$ > " + file),
                     Script(kServer, "ps/1", "trap 'exit 0' TERM; while :; do sleep 0.05; done"),
                     Script(kChief, "worker/0",
                            "while [ ! -s " + file + " ]; do sleep 0.01; done; while [ -e /proc/$(cat " +
                                file + ") ]; do sleep 0.01; done; kill -KILL $$")},
                    {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(),
              HasSubstr("worker/0 was killed by SIGKILL, and had stopped ps/0: the result is complete"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ARestartedChiefThatFindsNoServersDoesNotFailTheRun) {
  const std::string file = testing::TempDir() + "/lost_chief", second_life = file + "_again";
  std::remove(file.c_str());
  std::remove(second_life.c_str());
  Supervisor::Task chief =
      Script(kChief, "worker/0", DiesOnce(file, "touch " + second_life + "; exec sleep 1000"));
  chief.restarts = 1;
  Launched launched(
      {Script(kServer, "ps/0", "while [ ! -e " + second_life + " ]; do sleep 0.01; done"), chief},
      {.end_limit = milliseconds(200)});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(),
              HasSubstr("worker/0 still ran 0.2 s after the end of ps/0, and had stopped ps/0"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ATaskThatHangsAfterTheChiefIsNamedAndKilled) {
  Launched launched({Script(kServer, "ps/0", "trap 'exit 0' TERM; while :; do sleep 0.05; done"),
                     Script(kChief, "worker/0", "exit 0"), Script(kWorker, "worker/1", kStubborn)},
                    {.grace = milliseconds(200), .end_limit = milliseconds(200)});
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(launched.log(), HasSubstr("ps/0, worker/1 still ran 0.2 s after the chief's end"));
  EXPECT_THAT(launched.log(), HasSubstr("worker/1 did not stop within 0.2 s: killing"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, AWorkerThatIsNotNotifiedOfTheEndDoesNotFailTheRun) {
  const std::string file = testing::TempDir() + "/chief_ended";
  std::remove(file.c_str());
  Launched launched(
      {Script(kServer, "ps/0", "while [ ! -s " + file + " ]; do sleep 0.01; done"),
       Script(kChief, "worker/0", "echo done > " + file), Script(kWorker, "worker/1", "exec sleep 1000")},
      {.end_limit = milliseconds(200)});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(), HasSubstr("worker/1 still ran 0.2 s after the "));
  EXPECT_THAT(launched.log(), HasSubstr(": the result is complete, nothing is lost"));
  EXPECT_TRUE(launched.NothingLeft());
}

// The server fails after it was stopped, but before the end of the chief was seen: no task stops the
// restarted server.
TEST(Supervisor, AServerRestartedAtTheVeryEndIsStopped) {
  const std::string file = testing::TempDir() + "/server_life", again = file + "_again";
  std::remove(file.c_str());
  std::remove(again.c_str());
  Supervisor::Task server = Script(kServer, "ps/0", DiesOnce(file, "touch " + again + "; exec sleep 1000"));
  server.restarts = 1;
  Launched launched({server, Script(kChief, "worker/0", "while [ ! -e " + again + " ]; do sleep 0.01; done")},
                    {.grace = minutes(1), .end_limit = milliseconds(200)});
  EXPECT_EQ(launched.Wait(), 0) << "without waiting for the grace to be over";
  EXPECT_THAT(
      launched.log(),
      HasSubstr("ps/0 still ran 0.2 s after the chief's end: the result is complete, nothing is lost"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, InterruptGoesToTheWorkersFirstAndToTheServersAfterThem) {
  const auto obedient = [](const std::string& last_words) {
    return "trap 'echo " + last_words + " >&2; exit 130' INT; echo ready >&2; while :; do sleep 0.05; done";
  };
  Launched launched({Script(kServer, "ps/0", obedient("server stops")),
                     Script(kChief, "worker/0",
                            "trap 'sleep 0.3; echo chief stops >&2; exit 130' INT; "
                            "echo ready >&2; while :; do sleep 0.05; done")},
                    {.grace = minutes(1)});
  ASSERT_TRUE(launched.Logs("[ps/0] ready"));
  ASSERT_TRUE(launched.Logs("[worker/0] ready"));
  launched.Signal(SIGINT);
  EXPECT_EQ(launched.Wait(), 130);
  EXPECT_LT(launched.log().find("[worker/0] chief stops"), launched.log().find("[ps/0] server stops"));
  EXPECT_THAT(launched.log(), EndsWith("cairn train: stopped by SIGINT\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ATaskThatDoesNotStopWithinTheGracePeriodIsKilled) {
  Launched launched({Script(kServer, "ps/0", kRuns), Script(kChief, "worker/0", kStubborn)},
                    {.grace = milliseconds(200)});
  ASSERT_TRUE(launched.Logs("[worker/0] ready"));
  launched.Signal(SIGTERM);
  EXPECT_EQ(launched.Wait(), 143);
  EXPECT_THAT(launched.log(), HasSubstr("worker/0 did not stop within 0.2 s: killing"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ASecondSignalKillsAtOnce) {
  Launched launched({Script(kServer, "ps/0", kStubborn), Script(kChief, "worker/0", kStubborn)},
                    {.grace = minutes(10)});
  ASSERT_TRUE(launched.Logs("[ps/0] ready"));
  ASSERT_TRUE(launched.Logs("[worker/0] ready"));
  launched.Signal(SIGINT);
  ASSERT_TRUE(launched.Logs("a second signal kills the tasks"));
  launched.Signal(SIGINT);
  EXPECT_EQ(launched.Wait(), 130);
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, AKilledLauncherLeavesNoProcessBehind) {
  Launched launched({Script(kServer, "ps/0", "trap '' TERM INT; echo ready >&2; exec sleep 1000"),
                     Script(kChief, "worker/0", "trap '' TERM INT; echo ready >&2; exec sleep 1000")},
                    {});
  ASSERT_TRUE(launched.Logs("[ps/0] ready"));
  ASSERT_TRUE(launched.Logs("[worker/0] ready"));
  launched.Signal(SIGKILL);
  EXPECT_EQ(launched.Wait(), -SIGKILL);
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, ChildrenOfATaskAreKilledWithIt) {
  Launched launched({Script(kChief, "worker/0", "sleep 1000 & exit 0")}, {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, OnlyTheChiefSharesStdout) {
  Launched launched(
      {Script(kServer, "ps/0", "echo server"), Script(kChief, "worker/0", "echo result; echo log >&2"),
       Script(kWorker, "worker/1", "echo other; printf unfinished")},
      {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.out(), "result\n");
  EXPECT_THAT(launched.log(), HasSubstr("[ps/0] server\n"));
  EXPECT_THAT(launched.log(), HasSubstr("[worker/0] log\n"));
  EXPECT_THAT(launched.log(), HasSubstr("[worker/1] other\n"));
  EXPECT_THAT(launched.log(), HasSubstr("[worker/1] unfinished\n"));
}

TEST(Supervisor, AForeignProgramKeepsItsStreamsApartAndItsErrorsAreNotFiltered) {
  Supervisor::Task task = Script(kWorker, "worker/0",
                                 "echo result; printf unfinished; for i in 1 2; do "
                                 "echo 'E1126 01:23:54.326 1 x.cc:1] again' >&2; done");
  task.child.foreign = true;
  Launched launched({task}, {});
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.out(), "[worker/0] result\n[worker/0] unfinished\n");
  const std::string line = "[worker/0] E1126 01:23:54.326 1 x.cc:1] again\n";
  EXPECT_EQ(launched.log(), line + line);
}

// Tasks without a chief, as `cairn run` starts them.
Supervisor::Options WithoutChief() {
  return {.program = "cairn run", .end_limit = milliseconds(300)};
}

TEST(SupervisorWithoutChief, AWorkerThatEndsFirstDoesNotEndTheJob) {
  const std::string file = testing::TempDir() + "/first_has_ended";
  std::remove(file.c_str());
  Launched launched(
      {Script(kWorker, "worker/0", "touch " + file),
       Script(kWorker, "worker/1", "while [ ! -e " + file + " ]; do sleep 0.01; done; sleep 0.6")},
      WithoutChief());
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.log(), "");
}

TEST(SupervisorWithoutChief, WorkersMayOutliveTheServersForAnyTime) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kWorker, "worker/0", "sleep 0.8; exit 0")},
                    WithoutChief());
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_EQ(launched.log(), "");
}

TEST(SupervisorWithoutChief, ServersThatStillRunAfterTheLastWorkerAreStopped) {
  Launched launched({Script(kServer, "ps/0", kRuns), Script(kServer, "ps/1", "exit 0"),
                     Script(kWorker, "worker/0", "exit 0"), Script(kWorker, "worker/1", "exit 0")},
                    WithoutChief());
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(),
              EndsWith("cairn run: ps/0 still ran 0.3 s after the last worker's end: stopping it\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(SupervisorWithoutChief, TheFailureOfAWorkerEndsTheJobAlsoAfterTheServers) {
  Launched launched({Script(kServer, "ps/0", "exit 0"), Script(kWorker, "worker/0", kRuns),
                     Script(kWorker, "worker/1", "sleep 0.5; exit 5")},
                    WithoutChief());
  EXPECT_EQ(launched.Wait(), 5);
  EXPECT_THAT(launched.log(), EndsWith("cairn run: worker/1 ended with exit code 5; stopping the rest\n"));
}

TEST(SupervisorWithoutChief, TheFailureOfAServerAfterTheWorkersFailsTheRun) {
  Launched launched({Script(kServer, "ps/0", "sleep 0.2; exit 3"), Script(kWorker, "worker/0", "exit 0")},
                    WithoutChief());
  EXPECT_EQ(launched.Wait(), 3);
  EXPECT_THAT(launched.log(), EndsWith("cairn run: ps/0 ended with exit code 3\n"));
}

TEST(SupervisorWithoutChief, AWorkerThatIsLostWhenAnotherEndsIsRestarted) {
  const std::string server = testing::TempDir() + "/server_is_lost",
                    file = testing::TempDir() + "/is_lost_too";
  for (const std::string& old : {server, file}) std::remove(old.c_str());
  const std::string waits = "while [ ! -e " + server + " ]; do sleep 0.01; done; ";
  Supervisor::Task ps = Script(kServer, "ps/0", DiesOnce(server, kRuns)),
                   lost = Script(kWorker, "worker/1", waits + DiesOnce(file, "exit 0"));
  ps.restarts = lost.restarts = 1;
  Supervisor::Options options = WithoutChief();
  options.progress = [] {
    std::this_thread::sleep_for(milliseconds(1000));  // both workers end before they are examined
    return std::optional<int64_t>(1);
  };
  Launched launched({ps, Script(kWorker, "worker/0", waits + "exit 0"), lost}, options);
  EXPECT_EQ(launched.Wait(), 0);
  EXPECT_THAT(launched.log(), HasSubstr("worker/1 was killed by SIGKILL: restarting it (1 of 1)\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(SupervisorWithoutChief, AWorkerThatIsLostAtTheEndOfTheServersIsAFailure) {
  const std::string file = testing::TempDir() + "/worker_is_lost";
  std::remove(file.c_str());
  Supervisor::Task lost = Script(kWorker, "worker/1", DiesOnce(file, "exit 0"));
  lost.restarts = 1;
  Supervisor::Options options = WithoutChief();
  options.progress = [] {
    std::this_thread::sleep_for(milliseconds(1000));  // the server ends before the restart
    return std::optional<int64_t>(1);
  };
  Launched launched({Script(kServer, "ps/0", "while [ ! -e " + file + " ]; do sleep 0.01; done; sleep 0.1"),
                     Script(kWorker, "worker/0", kRuns), lost},
                    options);
  EXPECT_EQ(launched.Wait(), 138);
  EXPECT_THAT(launched.log(),
              EndsWith("cairn run: ps/0 ended before worker/1 was restarted; stopping the rest\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, AMissingProgramStopsTheTasksThatHaveStarted) {
  Supervisor::Task missing = Script(kChief, "worker/0", "");
  missing.child.command = {"/no/such/cairn-worker"};
  Launched launched({Script(kServer, "ps/0", kRuns), missing}, {});
  EXPECT_EQ(launched.Wait(), 1);
  EXPECT_THAT(
      launched.log(),
      EndsWith("cairn train: cannot start /no/such/cairn-worker for worker/0: No such file or directory\n"));
  EXPECT_TRUE(launched.NothingLeft());
}

TEST(Supervisor, AChildThatFloodsItsOutputDoesNotBlockTheSupervisor) {
  Launched launched(
      {Script(kServer, "ps/0", "while :; do echo flood; done"), Script(kChief, "worker/0", "exit 4")}, {});
  EXPECT_EQ(launched.Wait(), 4);
  EXPECT_THAT(launched.log(), Not(HasSubstr("[worker/0] flood")));
  EXPECT_TRUE(launched.NothingLeft());
}

}  // namespace
}  // namespace cairn::cli

// Starts the tasks of a cluster on this machine, watches them, and sees to it that none is left.
//
//             a child fails, SIGINT, SIGTERM                 grace over, or a second signal
//   kRunning ─────────────────────────────────▶ kStopping ─────────────────────────────────▶ kKilling
//      │  the chief is done, or                     ▲ │                                          │
//      ▼  a server ended early                      │ └─────────────── all ended ────────────────┤
//   kEnding ── a child fails, or end_limit over ────┘                                            ▼
//      └───────────────────────────────────────── all ended ───────────────────────────────▶ the exit code
//
// kStopping passes the signal on to the workers, and to the servers when no worker is left. In kRunning a
// task that is lost is started again, as often as it may be, and while the job makes steps; what is lost
// after the chief's end is no failure. One thread; Run blocks it until every child is reaped.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child.h"
#include "cli/fault_filter.h"
#include "common/core/clock.h"
#include "common/core/signals.h"

namespace cairn::cli {

class Supervisor {
 public:
  enum class Role { kServer, kChief, kWorker };
  struct Task {
    Role role;
    Child::Args child;
    // How often it is started again when it was lost: killed from outside, or ended with 138. Later from time
    // to time: a task that was lost within 5 s of its start waits before the next one, up to 5 s.
    int restarts = 0;
    // A worker of an elastic job: the others go on without it when it was stopped by a signal, or was lost
    // and is not started again.
    bool may_leave = false;
    std::vector<std::string> first_life{};  // more arguments, which it has not when it is started again
  };
  struct Options {
    std::string program = "cairn train";  // before every line of ours
    int log_fd = 2;                       // the children's lines, and ours
    // On a terminal that also shows the chief's progress line: clears it before a line of ours.
    bool clears_line = false;
    bool json = false;                          // our lines are JSON, as those of the children are told to be
    Duration grace = std::chrono::seconds(10);  // from a stop to SIGKILL
    Duration end_limit = std::chrono::seconds(30);  // from the chief's end, or a server's, to everybody's
    // Returns the job's step; nothing if it is not known now. Called after a task was lost; may block for a
    // second.
    std::function<std::optional<int64_t>()> progress{};
    // A task that was lost more often than this in a row while the job made no step is not started again. If
    // the step is not known, a run of the task for kFruitfulLife counts as a step.
    int max_fruitless_restarts = 10;
  };
  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Returns the launcher's exit code: 0 when all tasks ended with 0; the code of the first task that failed;
  // 130 or 143 after a signal. A task killed by a signal that is not started again counts as lost (138), or
  // as broken (1) when the signal was its own doing, such as SIGSEGV. The reason goes to `log_fd`, with the
  // last lines of the task that failed.
  int Run(const std::vector<Task>& tasks);

 private:
  enum class Phase { kRunning, kEnding, kStopping, kKilling };
  struct Member {
    Role role() const { return task->role; }

    const Task* task;
    std::unique_ptr<Child> child;
    TimePoint started_at;
    int restarts = 0;
    int fruitless = 0;                      // losses in a row without a step of the job between them
    std::optional<int64_t> step{};          // of the job, when the task was lost last
    Duration pause{};                       // before the last restart
    std::optional<TimePoint> restart_at{};  // it was lost and will be started again
  };

  bool StartAll(const std::vector<Task>& tasks);
  // False when it was not lost, or may not be started again.
  bool PlanRestart(Member& member);
  // Counts the loss of a task in `fruitless`.
  void NoteLoss(Member& member) const;
  void StartPlanned();
  void WaitForEvents(const SignalQueue& signals);
  void OnSignal(int signal);
  void ReapEnded();
  void OnEnd(Member& member);
  void OnDeadline();

  void EnterEnding();
  void Fail(int code, const std::string& text);
  // Of a chief that was lost when it had ended a server: it says its result before it does so.
  void EndWithoutChief(const std::string& text);
  void Stop(int signal);
  // The signal goes on to them when no worker runs.
  void TellServers();
  void KillAll();

  std::vector<const Member*> Running() const;
  bool RestartsPlanned() const;
  bool WorkersRunning() const;
  void Relay(const std::string& lines);
  void Say(const std::string& text);

  const Options options_;
  std::vector<Member> members_;
  FaultFilter faults_;
  Phase phase_ = Phase::kRunning;
  std::optional<TimePoint> deadline_;  // of the phase
  int stop_signal_ = 0;
  bool servers_told_ = false;     // kStopping: the signal went to the servers too
  bool chief_done_ = false;       // ended with 0: its result is out, and it needs nobody any more
  std::string early_server_;      // ended with 0 while workers ran; empty: none
  std::optional<int> exit_code_;  // set once, by whatever ended the run first
  std::string verdict_;           // said last
};

}  // namespace cairn::cli

// Starts the tasks of a cluster on this machine, monitors and restarts them, and stops all of them at the
// end.
//
//             a child fails, SIGINT, SIGTERM                 grace over, or a second signal
//   kRunning ─────────────────────────────────▶ kStopping ─────────────────────────────────▶ kKilling
//      │  the chief is done, or                     ▲ │                                          │
//      ▼  a server ended early                      │ └─────────────── all ended ────────────────┤
//   kEnding ── a child fails, or end_limit over ────┘                                            ▼
//      └───────────────────────────────────────── all ended ───────────────────────────────▶ the exit code
//
// A job without a chief (`cairn run`) is done when all workers have exited with 0, however long that takes
// after the end of a server. The servers that still run at end_limit after that are stopped.
//
// kStopping forwards the signal to the workers, and to the servers once no worker runs. A task is lost if
// another process kills it or if it exits with 138. In kRunning a lost task is restarted up to its limit
// while the job makes progress. A task that is lost after the chief has finished does not make the run fail.
// One thread; Run() blocks until every child is reaped.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launcher/child.h"
#include "cli/launcher/fault_filter.h"
#include "common/core/clock.h"
#include "common/system/signals.h"

namespace cairn::cli {

class Supervisor {
 public:
  enum class Role { kServer, kChief, kWorker };
  struct Task {
    Role role;
    Child::Args child;
    // How often the task is restarted when it is lost. A task that is lost within 5 s of its start is
    // restarted with an increasing delay of up to 5 s.
    int restarts = 0;
    // A worker of an elastic job: the job continues without it if a signal stopped it, or if it is lost and
    // not restarted.
    bool may_leave = false;
    std::vector<std::string> first_life{};  // additional arguments of the first start only
  };
  struct Options {
    std::string program = "cairn train";  // prefix of every line that the supervisor logs
    int log_fd = 2;                       // output of the children and of the supervisor
    int out_fd = 1;                       // standard output of foreign children
    // Whether to clear the chief's progress line on the terminal before each log line.
    bool clears_line = false;
    bool json = false;                          // log lines are JSON objects, like those of the children
    Duration grace = std::chrono::seconds(10);  // between the stop signal and SIGKILL
    // The time limit from the end of the chief or of a server to the end of all tasks. In a job without a
    // chief: from the end of the last worker to the end of the servers.
    Duration end_limit = std::chrono::seconds(30);
    // Returns the job's step, or nothing if it is unknown. Called after a task was lost; may block for one
    // second.
    std::function<std::optional<int64_t>()> progress{};
    // A task that is lost more often than this in a row without a step of the job in between is not
    // restarted. If the step is unknown, a run of the task for kFruitfulLife counts as a step.
    int max_fruitless_restarts = 10;
  };
  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Returns the exit code of the launcher: 0 if all tasks exited with 0; the code of the first task that
  // failed; 130 or 143 after a signal. A task that was killed by a signal and is not restarted counts as 138,
  // or as 1 if it caused the signal itself, such as SIGSEGV. The reason is logged to `log_fd`, with the last
  // lines of the failed task.
  int Run(const std::vector<Task>& tasks);

 private:
  enum class Phase { kRunning, kEnding, kStopping, kKilling };
  struct Member {
    Role role() const { return task->role; }

    const Task* task;
    std::unique_ptr<Child> child;
    TimePoint started_at;
    int restarts = 0;
    int fruitless = 0;                      // losses in a row without a step of the job in between
    std::optional<int64_t> step{};          // the job's step when the task was lost last
    Duration pause{};                       // delay of the last restart
    std::optional<TimePoint> restart_at{};  // set while a restart is planned
  };

  bool StartAll(const std::vector<Task>& tasks);
  // Plans a restart of a lost task. Returns false if the task was not lost or may not be restarted.
  bool PlanRestart(Member& member);
  // Counts the loss of a task in `fruitless`.
  void NoteLoss(Member& member) const;
  void StartPlanned();
  void WaitForEvents(const SignalQueue& signals);
  void OnSignal(int signal);
  void ReapEnded();
  void OnEnd(Member& member);
  // A server has exited with 0 while workers run.
  void OnEarlyServer();
  // Whether the clean end of `member` ends the job: it is the chief, or the last worker of a job without one.
  bool EndsJob(const Member& member) const;
  void OnDeadline();

  void EnterEnding();
  void Fail(int code, const std::string& text);
  // Ends a run whose chief was lost after it had stopped a server. The chief prints its result before it
  // stops servers.
  void EndWithoutChief(const std::string& text);
  void Stop(int signal);
  // Forwards the stop signal to the servers once no worker runs.
  void NotifyServers();
  void KillAll();

  std::vector<const Member*> Running() const;
  bool RestartsPlanned() const;
  bool WorkersRunning() const;
  // Shows the output of `member` that is available; `finish`: also its unfinished last lines.
  void Show(Member& member, bool finish);
  // Writes to log_fd.
  void Relay(const std::string& lines);
  void Log(const std::string& text);

  const Options options_;
  std::vector<Member> members_;
  FaultFilter faults_;
  Phase phase_ = Phase::kRunning;
  std::optional<TimePoint> deadline_;  // the end of the current phase
  int stop_signal_ = 0;
  bool servers_told_ = false;  // kStopping: the servers have received the signal
  bool has_chief_ = false;
  // The chief, or in a job without one every worker, has exited with 0: no other task is needed.
  bool done_ = false;
  std::string early_server_;      // server that exited with 0 while workers ran; empty: none
  std::optional<int> exit_code_;  // set once, by the first event that ends the run
  std::string verdict_;           // the last line to be logged
};

}  // namespace cairn::cli

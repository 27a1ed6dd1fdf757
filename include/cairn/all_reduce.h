// One worker of a group without servers: every step gives all workers the mean of their gradients, around a ring.
// The program holds the values and applies the optimizer of its choice.
//
//   Open ──► BeginStep ─► [Announce...] ─► FinishStep ─► mean() ──► ... ──► steps until all workers are done ─► End
//              ▲  │                             │
//              │  └─► CancelStep                │ kAborted: a worker was lost
//              └────────────────── Recover ◄────┘
//
// A worker that begins, or that was lost and is back, receives the state of the worker that is farthest: the program
// saves and loads it. All workers then have the same values, to the bit, if they apply the same optimizer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/connect.h"
#include "cairn/export.h"
#include "cairn/job.h"
#include "cairn/session.h"
#include "cairn/status.h"

namespace cairn {

struct AllReduceOptions {
  ConnectOptions
      connect{};  // `servers` is not used. connect_timeout limits every wait for the workers to connect
  // "host:port" of every worker, in the order of their numbers. Each worker listens on its own.
  std::vector<std::string> workers{};
  int worker = 0;           // this worker's number
  bool reuse_port = false;  // another process may be bound to the port, as a launcher that reserves it
  // The time limit of a step of all workers.
  std::chrono::milliseconds step_timeout = std::chrono::minutes(10);
  // A worker that sends no sign of life for this long is lost: the others wait for its return.
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  // Workers with other variables, or with another text here, are refused.
  std::string description{};
  // The state of the program, in any format: the values and those of the optimizer. Called during Open(),
  // Recover() and CancelStep(). `load` replaces them by those of another worker.
  std::function<Status(std::string* state)> save{};
  std::function<Status(const std::string& state)> load{};
};

struct AllReduceStep {
  int64_t examples = 0;  // of all workers; 0: there is no mean
  bool done = false;     // all workers are done: End() follows
};

// Not thread-safe: all calls come from one thread at a time, except Announce() and Cancel(), which any thread may call.
// Calls of Announce() must have returned before any other call. Calls that wait end early, with kCancelled, by
// ConnectOptions::keep_waiting or Cancel(), which is the end: all later calls fail.
class CAIRN_EXPORT AllReduce {
 public:
  // Listens, connects all workers, and gives them the state of worker 0, or of a worker that is farther. Only the
  // `variables` of the job are used, all as trained ones. kInvalidArgument for wrong options; kUnavailable names the
  // workers that were not reached; kFailedPrecondition if a neighbour has other variables or another description.
  static Status Open(const Job& job, const AllReduceOptions& options, std::unique_ptr<AllReduce>* all_reduce);
  // Leaves the group as LeaveReason::kStopped unless End() or Leave() was called.
  ~AllReduce();
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  // This worker's gradients, as one array in the order of the variables; those of one variable.
  std::span<float> gradients();
  std::span<float> gradients(int variable);

  // Begins a step with gradients(), as the mean over `examples` examples, which is their weight. With 0 examples they
  // are not read. `done`: this worker has no more gradients of its own, and takes part until all are done. Does not
  // block. kFailedPrecondition if a step is in progress.
  Status BeginStep(int64_t examples, bool done = false);
  // The gradient of a variable is final, and is sent while others are computed. Optional: FinishStep() sends the rest.
  Status Announce(int variable);
  // Waits for the mean. kAborted: Recover() may help. kCancelled by keep_waiting, or kDeadlineExceeded: the step goes
  // on, and another call waits for it again.
  Status FinishStep(AllReduceStep* step);
  // Gives up a step before FinishStep(): all workers connect again and repeat it. `loaded`, and failures: as Recover().
  Status CancelStep(bool* loaded);

  // The mean of the last step, in the order of the variables. `owner` keeps the memory, which other workers' gradients
  // overwrite when all gradients of the next step have been announced. Of one worker, it is the memory of gradients(),
  // without an owner. To be changed only after AwaitSent().
  struct Mean {
    std::span<float> values;
    std::shared_ptr<const void> owner;
  };
  Mean mean();
  // Waits until the mean has been passed on. Returns at once if it has, as mostly after an optimizer's update.
  Status AwaitSent();

  // After a call that failed with kAborted: connects all workers again. `loaded`: whether this worker was behind
  // another one, whose state was loaded; its step is then in that state, or lost. Otherwise the step must be repeated.
  // Returns other failures, and the last one after 10 attempts without a step in between. If it ends with kCancelled by
  // keep_waiting, or with kUnavailable at connect_timeout, there is no step in progress; the next one fails with
  // kAborted, and Recover() then connects the workers.
  Status Recover(const Status& failure, bool* loaded);
  // The number of steps that are in the state.
  int64_t version() const;

  // After a step with AllReduceStep::done: leaves the group.
  Status End();
  // Leaves the group early: the others wait for this worker's return, or fail for LeaveReason::kFailed. Best effort.
  void Leave(LeaveReason reason, const std::string& message);
  // Makes all waits, now and later, end with kCancelled. Any thread.
  void Cancel();

 private:
  class Impl;
  explicit AllReduce(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

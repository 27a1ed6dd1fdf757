// One worker of a training job: the program computes gradients, the servers hold the variables and apply the
// optimizer.
//
//   std::unique_ptr<cairn::Session> session;
//   cairn::Status status = cairn::Session::Open(job, options, &session);
//   if (status.ok()) {
//     status = session->Run([](cairn::Session& s) -> cairn::Status {  // once for each step
//       if (cairn::Status begun = s.BeginStep(kExamples); !begun.ok()) return begun;
//       ComputeGradients(s.values(), s.gradients());
//       return s.FinishStep();
//     });
//   }
//
// The life of a session; Run() makes all calls but Open():
//
//   Open ──► BeginStep ─► [Announce...] ─► FinishStep ──► ... ──► End
//              ▲  ▲              │              │                  │
//              │  └─ CancelStep ◄┘              ▼                  │
//              └────────────────────────── Recover ◄──────────────┘  a task was lost (kAborted)
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/buffer.h"
#include "cairn/connect.h"
#include "cairn/export.h"
#include "cairn/job.h"
#include "cairn/rows.h"
#include "cairn/status.h"

namespace cairn {

struct SessionOptions {
  ConnectOptions connect{};
  // This worker's number, in [0, Job::workers). Worker 0 is the chief: it declares the job and provides the
  // first values, takes checkpoints, and ends the servers. With Job::elastic, servers assign the number of
  // every worker but the chief by its `task`.
  int worker = 0;
  // The name of this task in messages. Empty: "worker/<number>", which it must be unless the job is elastic.
  std::string task{};
  // The time limit of every wait for other workers or servers during training.
  std::chrono::milliseconds step_timeout = std::chrono::minutes(10);

  // For the chief: fills in the first values, [elements of all variables], all 0 on entry. Called during
  // Open() or Recover() if the servers have no values and there is no checkpoint to resume from. An error
  // ends that call. Null: zeros.
  std::function<Status(std::span<float>)> first_values{};

  // For the chief: the directory in which checkpoints are kept, below <directory>/checkpoints. The job
  // resumes from the newest one; if servers lose their variables, all are restored to it. Empty: no
  // checkpoints, and lost variables end the job.
  std::string checkpoint_directory{};
  // A checkpoint is due after this many updates, and begins when the one before it has been written. 0: not by updates.
  int64_t checkpoint_every_updates = 0;
  std::chrono::milliseconds checkpoint_every{};  // 0: not by time
  int64_t checkpoints_to_keep = 5;               // 0: all
};

// Settings of a group of variables (Variable::group) for updates.
struct GroupSettings {
  std::optional<float> learning_rate{};  // in place of the job's and its schedule; none: the job's
  // Values and optimizer state stay as they are: no gradient, no decay, no moments, no averages. The gradients
  // of these variables are ignored, and need not be computed.
  bool untouched = false;
  // In place of the optimizer's for this group: "weight_decay", "beta1", "momentum". Each call of SetGroups() sets
  // all of them. A hyperparameter that changes which state the optimizer keeps ("amsgrad") is the same for all groups.
  std::map<std::string, double> hyperparameters{};
};

// Examples [first, first + count) in the order of an epoch, which the program chooses: a permutation that all workers
// derive from `epoch`, or no permutation.
struct WorkItem {
  int64_t epoch = 0;  // from 0
  int64_t first = 0;
  int64_t count = 0;  // 0: a round has no examples for this worker; it takes part with a step of no examples
};

// The servers' decision about a step's gradients.
enum class Outcome {
  kAccepted = 1,  // they are in the update to Session::version()
  kStale = 2,     // refused: computed from values that are too old
  kFinished = 3,  // refused: the job has made its last update
};

struct StepResult {
  Outcome outcome = Outcome::kAccepted;
  int64_t staleness = 0;   // the number of updates between the values that were used and this update
  bool duplicate = false;  // the gradients had arrived before, and count once
};

// Counters of ps/0 since the job began.
struct Counters {
  int64_t accepted = 0, stale = 0, duplicate = 0, rejected = 0;  // gradients
  int64_t examples = 0;                                          // in accepted gradients
  int64_t staleness_max = 0;                                     // of an accepted gradient, in updates
};

// The state of the optimizer at one point of the job.
struct OptimizerState {
  // Under the optimizer's names of its slots ("exp_avg"): [elements of all variables].
  std::map<std::string, std::vector<float>> slots{};
  // [Variable::group] The updates that have touched the group.
  std::vector<int64_t> updates{};
};

// How a worker leaves.
enum class LeaveReason {
  kStopped = 2,  // the job goes on without it
  kFailed = 3,   // the job ends with an error for all workers
};

// Not thread-safe: all calls come from one thread at a time, except Announce() and Cancel(), which any thread
// may call. Spans stay valid as long as the session.
//
// Calls that wait have a time limit (ConnectOptions::connect_timeout before training, step_timeout during
// training) and end early, with kCancelled, by ConnectOptions::keep_waiting or Cancel().
class CAIRN_EXPORT Session {
 public:
  // Reaches the servers, declares the job if this worker is the chief, waits for the job if it is not,
  // becomes a member and fetches the values. kInvalidArgument for a job or options that the message names as
  // wrong; kFailedPrecondition if the servers train another job, or if the newest checkpoint has other
  // variables or another optimizer; kUnavailable names what was not reached; kOutOfRange if the job has
  // ended.
  static Status Open(const Job& job, const SessionOptions& options, std::unique_ptr<Session>* session);
  // Leaves the job as LeaveReason::kStopped unless it has ended or Leave() was called. May take a few
  // seconds.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Calls `step`, which makes one step, until the job has made its last update, then End(). After a step or
  // End() that failed because a task was lost, recovers and goes on. Any other error of `step` ends the loop:
  // the worker leaves, and Run() returns that error. The worker leaves as LeaveReason::kStopped if the program
  // cancelled or if another process of the task may succeed (kCancelled, kUnavailable, kDeadlineExceeded,
  // kAborted, kFailedPrecondition, kDataLoss, kUnauthenticated), otherwise as LeaveReason::kFailed.
  // kFailedPrecondition if a step is in progress.
  Status Run(const std::function<Status(Session&)>& step);

  // --- Values ---

  // The values of all variables, one after another in the order of the job, as of version(). Constant until
  // FinishStep(), AwaitWork(), Pull() or Recover().
  std::span<const float> values() const;
  // Those of variable `variable` (its index in Job::variables), row-major.
  std::span<const float> values(int variable) const;
  // The two places between which values() alternates, always in the same order.
  std::array<std::span<const float>, 2> value_places() const;
  // The number of updates in values(). With kAsync, where every server counts its own: those of ps/0.
  int64_t version() const;
  // Fetches the current values, outside of a step.
  Status Pull();

  // --- Steps ---

  // This session's gradients, as values(), in memory that a server on this host can map (Buffer). Not changed
  // by the library.
  std::span<float> gradients();
  std::span<float> gradients(int variable);

  // Begins a step: the gradients of values(), as the mean over `examples` examples, which is their weight in
  // the update. With 0 examples the worker takes part in the round, and gradients are neither read nor sent; a round
  // without examples is an update with a gradient of zeros. A gradient that is not finite ends the job for all workers
  // with kInvalidArgument.
  // `gradients`: [elements of all variables] in any memory; empty: gradients(). They must stay valid until
  // FinishStep() has returned true in `done`, CancelStep(), Recover() or Leave(). Does not block.
  // kFailedPrecondition if a step is in progress; kInvalidArgument for a wrong number of gradients or
  // examples.
  Status BeginStep(int64_t examples, std::span<const float> gradients = {});
  // The gradient of a variable is final and is sent while others are computed. Optional: FinishStep() sends
  // what has not been announced. kFailedPrecondition if it was announced before or no step is in progress.
  // Does not wait for the network. Any thread; the calls must have returned before FinishStep().
  Status Announce(int variable);
  // Ends the step: waits for the update, and makes its values the current ones: values() is then the other one of
  // value_places(), and the earlier values stay readable until the next FinishStep(). kAborted: Recover() may help.
  // kDeadlineExceeded names the workers and servers that were waited for. `result` may be null.
  Status FinishStep(StepResult* result = nullptr);
  // As FinishStep(), but waits for about `slice` at most: sets `done` to whether the step has ended. If not,
  // call it or FinishStep() again. A server that fails during the call may prolong it by its timeouts of up
  // to 10 s.
  Status FinishStepWithin(std::chrono::milliseconds slice, bool* done, StepResult* result = nullptr);
  // Gives up a step before FinishStep(): none of its gradients counts, whether announced or not. Another step
  // may begin, for example with 0 examples. Costs the connections of the step, which the next one opens
  // again. kFailedPrecondition if no step is in progress, or if FinishStep() was called: its gradients may be
  // in an update already.
  Status CancelStep();

  // --- Rows: with Job::tables ---
  //
  // A step pushes gradients of the rows that its examples use, as a part of the step: they count once, in the same
  // update as the gradients of the variables. Its answer brings the rows that the next step needs.
  //   ReadRows ─► { BeginStep ─► PushRows, WantRows ─► FinishStep }...
  //
  // The following three calls name each table at most once. kInvalidArgument, without effect, names the table for an
  // unknown table, a wrong number of elements, and an id that the table cannot have.

  // Reads rows as they are now. Blocks. Creates none: a row that does not exist has its first values. Rows on two
  // servers may be of different versions if an update is made meanwhile.
  Status ReadRows(const std::vector<RowsToRead>& rows);
  // The step in progress pushes these gradients, which are means over its examples as those of variables are; with 0
  // examples they are not sent. Gradients of an id that occurs twice are added. At most once in a step. Ids and
  // gradients must stay valid and unchanged as those of BeginStep(). A step that begins again after Recover() must push
  // them again.
  Status PushRows(const std::vector<RowGradients>& gradients);
  // The answer to the step in progress fills in these rows, as they are after the update: see has_wanted_rows(). At
  // most once in a step. Memory as for PushRows().
  Status WantRows(const std::vector<RowsToRead>& rows);
  // True after a step whose answer filled in its wanted rows, until values() change again.
  bool has_wanted_rows() const;

  // Whether the job has made its last update: steps have no effect any more.
  bool finished() const;
  // The number of this worker's next step, from 0: the number of its steps that are in updates, including
  // those of earlier processes of the task and those before a checkpoint. A program may choose its examples
  // by it. With kSync: version(). With kBoundedStaleness: at least the slowest worker's.
  int64_t position() const;

  // --- Work items: with Job::work_queue ---
  //
  // A step of Run() then begins with these lines, and uses work_items()[0]:
  //   if (cairn::Status status = s.AwaitWork(); !status.ok() || s.finished()) return status;

  // The assigned work items: the next step must be made from the first one, with its number of examples.
  // Those that follow are for loading data early, and may still be assigned to another worker: each step ends
  // with a new list. Empty: AwaitWork().
  std::vector<WorkItem> work_items() const;
  // Waits until there is a work item or the job has finished, and fetches the current values.
  Status AwaitWork();
  // The number of workers that take part.
  int members() const;

  // --- Failures and the end ---

  // After a call that failed with `failure`: if a lost membership, server or checkpointed state can be
  // recovered, becomes a member again, with the current values and work items, and returns OK. A step in
  // progress is lost. Otherwise, or after 10 attempts without an update in between, returns the error.
  Status Recover(const Status& failure);
  // Leaves the job with all work done, and waits for its end. The chief waits for all other workers first,
  // saves a checkpoint if it has a directory, and ends the servers; values() are the final ones then.
  // kAborted: Recover() and further steps.
  Status End();
  // Whether End() has returned OK.
  bool ended() const;
  // Leaves the job early. Best effort; takes a few seconds if a server does not answer.
  void Leave(LeaveReason reason, const std::string& message);
  // Makes all waits, now and later, end with kCancelled. Any thread.
  void Cancel();

  // --- For the chief: kFailedPrecondition on other workers ---

  // Saves a checkpoint of the current state, and returns when it is on the disk. kFailedPrecondition without
  // a directory; kResourceExhausted if the disk is full.
  Status SaveCheckpoint();
  // Sets the settings of all groups, [group], for the update of this worker's next step and all later ones, on
  // all servers. To be called between two steps, as often as wanted: it makes no call, because the settings
  // travel with the next step's gradients. They wait for a later step if a step is cancelled or stale, outlive
  // a rollback, and are in checkpoints. A call that changes nothing sends nothing. kInvalidArgument for a wrong
  // number of groups and, naming the group, for a rate that is negative or not finite and for a hyperparameter that is
  // unknown, out of range or the same for all groups. Also for settings of more than 128 KiB, where consecutive groups
  // with equal settings count once.
  Status SetGroups(const std::vector<GroupSettings>& groups);
  // Sets the learning rate of all later updates. kInvalidArgument if the job has a schedule.
  Status SetLearningRate(float rate);
  Status GetLearningRate(float* rate);
  // Ends training before its last update, for all workers: finished() is true then, and End() follows.
  Status EndTraining();
  // Replaces the values on all servers. To be used while no other worker trains. kInvalidArgument if the
  // number of values is wrong.
  Status WriteValues(std::span<const float> values);
  Status GetCounters(Counters* counters);
  // Reads all rows that training has made of a table of Job::tables, of one version, with their ids: `rows`
  // [id][width]. Takes the time of a checkpoint. kInvalidArgument for an unknown table.
  Status ReadTable(int table, std::vector<int64_t>* ids, std::vector<float>* rows);
  // Fetches the state of the optimizer from all servers, outside of a step.
  Status ReadOptimizerState(OptimizerState* state);

  // This worker's number.
  int worker() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

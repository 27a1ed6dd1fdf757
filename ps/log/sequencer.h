// Writes the round log: decides, for all servers of a job, what happens in which order
// (docs/design/round-log.md).
//
// Servers report which pushes they have received completely. When all of them have a push, it is passed to
// the policy, whose decisions become entries of one log. Every server executes the entries in order.
// Therefore an update has the same contributors for all variables, a version means the same on every server,
// and a marker in the log is a consistent point for reads. In asynchronous jobs each server sequences for
// itself, with a log of its own, unless updates need norms, which span all servers.
//
// With norms, an update takes one Measure entry per norm, for which all servers report their sums, and then
// the Apply. Each entry carries the totals of the Measure before it. Decisions made meanwhile are written
// after the Apply.
//
// The log keeps the entries that some server has not executed. While one server makes no progress, the log
// grows by at most one push per worker, because no push is decided without that server. Clients' requests
// have no such bound: they are refused while the log holds kMaxUnexecuted entries.
//
// The decisions are those of a state machine (sequencer_state.h), which only Step() changes. This class adds
// the lock, the servers' subscriptions, and the limit on the time of a Measure. With a backup, an InputSink
// receives every input of the state machine, and the backup's sequencer takes the same inputs by its Step().
// Followers receive an entry only after the backup has it: no follower has executed an entry that a promoted
// backup does not know.
//
// One per job, on ps/0; in asynchronous jobs, one on each server. Thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "ps/log/log_entry.h"
#include "ps/log/sequencer_input.h"
#include "ps/log/sequencer_state.h"

namespace cairn::ps {

// The round of a synchronous job that is open.
struct OpenRound {
  int64_t version = 0;         // that its gradients are computed from
  std::vector<int> workers{};  // whose gradients it has or waits for, ascending
};

// Receives the log on behalf of a server.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Called in log order under the sequencer's lock: must only queue the entry.
  virtual void Append(const LogEntry& entry) = 0;
  // Called after Append, outside the lock, by any thread: may execute the queued entries.
  virtual void Flush() = 0;
  // The log has ended, for this `reason`: no entry will follow, and the server must subscribe again. Called
  // outside the lock.
  virtual void End(const absl::Status& reason) = 0;
};

// How a shard reports to the sequencer of its job, in this process or on another server.
class SequencerPort {
 public:
  virtual ~SequencerPort() = default;
  // The shard has received this push completely. Repeats are harmless.
  virtual void ReportStaged(const Gradient& gradient) = 0;
  // The shard has measured its slices. Repeats are harmless.
  virtual void ReportSums(Sums sums) = 0;
  // The shard has executed the log up to `index`.
  virtual void ReportExecuted(int64_t index) = 0;
  // The shard waits at `index` for gradients that workers must send again. Repeated while it waits.
  virtual void ReportWaiting(int64_t index) = 0;
};

// Receives every input of a sequencer on behalf of its backup.
class InputSink {
 public:
  using Callback = absl::AnyInvocable<void(const absl::Status& lost)>;
  virtual ~InputSink() = default;
  // Called in the order of the inputs under the sequencer's lock, before any server receives the entries that
  // follow from `input`. Must not block.
  virtual void Append(const SequencerInput& input) = 0;
  // Calls `then` when the backup has all inputs so far; at once if nothing needs to wait for it. `lost` is not
  // OK if it will never be known whether the backup has them.
  virtual void WhenReceived(Callback then) = 0;
  // The entries that follow from the inputs have been given to this server's shard. Inputs that wait to be sent
  // together with such an entry are sent now.
  virtual void Flush() = 0;
};

class Sequencer {
 public:
  static constexpr size_t kMaxUnexecuted = SequencerState::kMaxUnexecuted;

  // As SequencerState().
  Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers, absl::Span<const optim::Norms> norms = {},
            Progress resumed = {}, int most_workers = std::numeric_limits<int>::max())
      : state_(std::move(policy), num_servers, norms, std::move(resumed), most_workers),
        subscriptions_(static_cast<size_t>(num_servers)) {}

  // Changes the state, and is the only way to do so: the other calls that change it are short for this one.
  // Refuses `input`, without effect, as SequencerState::Check() does. A report that a subscribed server has
  // executed entries counts up to the last entry that the server was sent. `after`, if it is not null,
  // receives the progress of the job at this point of the log.
  absl::Status Step(SequencerInput input, Progress* after = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);

  void Join(int worker, uint64_t incarnation) { Step(WorkerJoined{worker, incarnation}).IgnoreError(); }
  // `worker` has left, or its lease has expired.
  void Leave(int worker, uint64_t incarnation) { Step(WorkerLeft{worker, incarnation}).IgnoreError(); }
  // Returns the progress of the job at the marker. RESOURCE_EXHAUSTED, naming the server that lags, if the
  // log is full.
  absl::StatusOr<Progress> WriteMarker(const Marker& marker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes a config change by the chief (worker 0). ABORTED unless `incarnation` is the chief's current
  // incarnation and a member. RESOURCE_EXHAUSTED as WriteMarker(). An incarnation numbers its config changes
  // in rising order: a call whose number is not above the previous number is a repeat, and has no effect.
  absl::Status ChangeConfig(uint64_t incarnation, int64_t number, const ConfigChange& config_change)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets the sink that feeds the backup, and the server that runs this sequencer. To be called once, before
  // the first subscription. `inputs` must live as long as the sequencer is used.
  void ReplicateTo(InputSink* inputs, int own_server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls send(state) under the lock: the inputs that the InputSink receives from here on continue this state.
  void Capture(absl::FunctionRef<void(const SequencerState& state)> send) ABSL_LOCKS_EXCLUDED(mutex_);
  // For a backup. INVALID_ARGUMENT, without effect, for a state that does not fit the job.
  absl::Status Load(const v1::SequencerState& saved) ABSL_LOCKS_EXCLUDED(mutex_);

  // Streams the log to `server` from `next_index` on, replacing its previous subscription. `epoch`: the epoch
  // of the server's shard. FAILED_PRECONDITION: the log does not contain `next_index`. UNAVAILABLE, after
  // which the caller must look for the current sequencer and subscribe again:
  // - The log has ended.
  // - A later epoch of the shard has subscribed.
  // - With replication: the log ends before `next_index`. This server's backup has been promoted, and it
  //   wrote the entries that the subscriber has.
  // - With replication: the log begins after `next_index`. The subscriber's backup has been promoted, and it
  //   executed the entries that the subscriber lacks.
  absl::Status Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink, int64_t epoch = 0)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Has an effect only if `sink` is still subscribed.
  void Unsubscribe(int server, const LogSink* sink) ABSL_LOCKS_EXCLUDED(mutex_);

  // Called when the job has been replaced or the server stops: ends all subscriptions, and refuses new ones
  // with UNAVAILABLE and `reason`.
  void End(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // A push by a worker that is not a member is refused through the log, or not answered while the log is
  // full.
  void OnStaged(int server, const Gradient& gradient) { Step(PushStaged{server, gradient}).IgnoreError(); }
  // Ignored unless `sums` belong to the current Measure and are new.
  void OnSums(int server, Sums sums) { Step(SumsReported{server, std::move(sums)}).IgnoreError(); }
  void OnExecuted(int server, int64_t index) { Step(EntriesExecuted{server, index}).IgnoreError(); }
  // `server` waits for gradients of live workers before it can measure. Repeated while it waits.
  void OnWaiting(int server, int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);

  // ABORTED, naming the servers whose sums are missing, if a Measure takes too long: all of these servers
  // have been subscribed for 60 s, and none of them has reported that it waits. Time is measured from call to
  // call; the owner calls this several times a second.
  absl::Status CheckMeasuring(TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Called after the process was paused and could not process the servers' reports: the 60 s of
  // CheckMeasuring() begin again.
  void WokeUp() ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t version() const ABSL_LOCKS_EXCLUDED(mutex_);
  UpdateCounters counters() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The largest position among the gradients of `worker` that are in updates; 0 if there is none.
  int64_t position(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As UpdatePolicy::ClockOf().
  int64_t ClockOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As in UpdatePolicy; only with dynamic sharding.
  std::optional<Work> WorkOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<WorkPosition> DataPosition() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The workers that the next update waits for.
  std::vector<int> WaitingFor() const ABSL_LOCKS_EXCLUDED(mutex_);
  OpenRound open_round() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The servers that are not subscribed, or whose sums are missing.
  std::vector<int> MissingServers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Subscription {
    std::shared_ptr<LogSink> sink{};  // null: the server is not subscribed
    int64_t sent = 0;                 // index of the last entry passed to the sink
    int64_t epoch = 0;                // the subscriber's epoch
  };
  // How long the current Measure has taken, for CheckMeasuring().
  struct MeasureTime {
    int64_t index = 0;                 // of the Measure
    std::optional<TimePoint> since{};  // when the 60 s began
  };

  // Passes to each sink the entries that its server may execute now.
  void Hand() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when the backup has all entries up to `index`: now the followers may have them too.
  void Release(int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<LogSink>> Sinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Subscription& SubscriptionOf(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return subscriptions_[static_cast<size_t>(server)];
  }

  mutable Mutex mutex_;
  SequencerState state_ ABSL_GUARDED_BY(mutex_);
  std::vector<Subscription> subscriptions_ ABSL_GUARDED_BY(mutex_);  // [server]
  MeasureTime measure_time_ ABSL_GUARDED_BY(mutex_);
  InputSink* inputs_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: there is no backup
  // With a backup: the index of this server, which executes entries before the backup has them.
  int own_server_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;  // index of the last entry released to the other servers
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);    // the reason; OK: the log has not ended
};

}  // namespace cairn::ps

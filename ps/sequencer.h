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
// With a backup on another server (replicator.h), the backup's sequencer receives the same events in the same
// order, so it makes the same decisions (sequencer_replica.cc). Followers receive an entry only after the
// backup has it: no follower has executed an entry that a promoted backup does not know.
//
// One per job, on ps/0; in asynchronous jobs, one on each server. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "ps/optim/optimizer.h"
#include "ps/policy/policy.h"
#include "ps/replicator.h"
#include "ps/squares.h"

namespace cairn::ps {

// The maximum size of a marker's token, in bytes.
inline constexpr size_t kMaxMarkerLength = 256;

struct Marker {
  std::string token;
  bool snapshot = false;  // the slots are stored with the values
};

// The progress of the job at a point of the log.
struct Progress {
  int64_t version = 0;
  UpdateCounters counters{};
  // [worker]: the largest Gradient::position of its gradients in updates.
  std::map<int, int64_t> positions{};
  std::optional<WorkPosition> data{};  // replaces `positions` with dynamic sharding
};

// Asks every server for its sums for `norms`, over the mean of `contributors`. This mean will make the update
// to `version`.
struct Measure {
  int64_t version = 0;
  std::vector<Gradient> contributors;
  Norms norms = Norms::kGradient;
};

// A config change by the chief, from this point of the log on.
struct ConfigChange {
  std::optional<float> learning_rate{};  // for all later updates
  bool end = false;                      // the current version is the job's last
};

struct LogEntry {
  using What = std::variant<Apply, Refuse, Release, Marker, Measure, ConfigChange>;
  int64_t index = 0;  // the first entry has index 1
  What what;
  // In an entry that follows a Measure: the totals of that Measure over all servers.
  VariableSquares known{};
};

// One server's contribution to the sums of the Measure at `index` of the log.
struct Sums {
  int64_t index = 0;
  std::vector<SliceSquares> slices;
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

class Sequencer {
 public:
  // The limit on entries that some server has not executed, or that wait behind a Measure.
  static constexpr size_t kMaxUnexecuted = 16384;

  // `norms`: the norms that each update takes, in this order. `resumed`: the progress of the job so far, at
  // the version where the policy begins.
  Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers, absl::Span<const Norms> norms = {},
            Progress resumed = {});

  void Join(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // `worker` has left, or its lease has expired.
  void Leave(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the progress of the job at the marker. RESOURCE_EXHAUSTED, naming the server that lags, if the
  // log is full.
  absl::StatusOr<Progress> WriteMarker(const Marker& marker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes a config change by the chief (worker 0). ABORTED unless `incarnation` is the chief's current
  // incarnation and a member. RESOURCE_EXHAUSTED as WriteMarker(). An incarnation numbers its config changes
  // in rising order: a call whose number is not above the previous number is a repeat, and has no effect.
  absl::Status ChangeConfig(uint64_t incarnation, int64_t number, const ConfigChange& config_change)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets the replicator that feeds the backup, and the server that runs this sequencer. To be called once,
  // before the first subscription. `replicator` must live as long as the sequencer is used.
  void ReplicateTo(Replicator* replicator, int own_server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the whole state to the replicator.
  void Capture() ABSL_LOCKS_EXCLUDED(mutex_);
  // For a backup: RestoreReplica() takes a whole state, Replay() one event. INVALID_ARGUMENT for a state or
  // event that does not fit the job.
  absl::Status RestoreReplica(const v1::ReplicatedSequencer& replicated) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Replay(const v1::SequencerEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
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
  void OnStaged(int server, const Gradient& gradient) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ignored unless `sums` belong to the current Measure and are new.
  void OnSums(int server, Sums sums) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnExecuted(int server, int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);
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
  // The servers that are not subscribed, or whose sums are missing.
  std::vector<int> MissingServers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A push that some servers have received, but not all.
  struct Partial {
    Gradient gradient;
    std::set<int> servers;
  };
  struct Worker {
    uint64_t incarnation = 0;
    bool member = false;
    int64_t last_step = 0;           // the last step passed to the policy
    int64_t last_config_change = 0;  // number of the chief's last config change
  };
  struct Server {
    std::shared_ptr<LogSink> sink;
    int64_t executed = 0;
    int64_t sent = 0;   // index of the last entry passed to the sink
    int64_t epoch = 0;  // the subscriber's epoch
  };
  // The update whose Measure is the last entry of the log.
  struct Measuring {
    explicit Measuring(Apply to_apply) : apply(std::move(to_apply)) {}
    Apply apply;
    size_t norms = 0;                    // index in norms_ of the norm that is measured
    int64_t index = 0;                   // the index of the Measure in the log
    std::map<int, Sums> sums;            // [server]: the sums that it has reported
    std::optional<TimePoint> seen_at{};  // when the 60 s of CheckMeasuring() began
  };

  absl::Status CheckLogHasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress ProgressNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(std::vector<Decision> decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends a decision: at once or, while an update is being measured, after that update's Apply.
  void Append(LogEntry::What what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(LogEntry::What what, VariableSquares known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the next entry of the update that is being measured: a Measure, or finally the Apply.
  void WriteMeasured(VariableSquares known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<int> UnmeasuredServers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Passes to each sink the entries that its server may execute now.
  void Hand() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called when the backup has all entries up to `index`: now the followers may have them too.
  void Release(int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  // Changed() collects, under the lock, the recipients of a change; Deliver() notifies them outside the lock.
  struct Change {
    std::vector<std::shared_ptr<LogSink>> sinks;
    Replicator* replicator = nullptr;  // null: there is no backup
    int64_t written = 0;               // index of the last entry
  };
  Change Changed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_);
  // replicated(): whether events must be sent to the backup. Replicate() sends an event to the backup; it is
  // called before each change, so that the backup makes the same change.
  bool replicated() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Replicate(v1::SequencerEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPartials(int worker, Refuse::Reason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<LogSink>> Sinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const LogEntry& EntryAt(int64_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<Norms> norms_;
  const UpdateCounters counters_before_;

  mutable Mutex mutex_;
  const std::unique_ptr<UpdatePolicy> policy_ ABSL_PT_GUARDED_BY(mutex_);
  std::map<int, int64_t> positions_ ABSL_GUARDED_BY(mutex_);  // [worker]
  std::map<PushKey, Partial> partials_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);
  std::deque<LogEntry> log_ ABSL_GUARDED_BY(mutex_);  // entries that some server has not executed
  int64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  Replicator* replicator_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: there is no backup
  // With a replicator: the index of this server, which executes entries before the backup has them.
  int own_server_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;  // index of the last entry released to the other servers
  std::optional<Measuring> measuring_ ABSL_GUARDED_BY(mutex_);
  // Decisions that wait until the measured update has been applied.
  std::deque<LogEntry::What> behind_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // the reason; OK: the log has not ended
};

}  // namespace cairn::ps

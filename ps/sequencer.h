// Decides, for all servers of a job, what happens in which order: the round log.
//
// Servers report which pushes they hold completely. When all of them hold one, the policy hears of it; what
// it decides becomes entries of one log, which every server executes in order. So the contributors of an
// update are the same for all variables, a version means the same everywhere, and a mark in the log is one
// consistent point of reading. In asynchronous jobs each server sequences itself, with a log of its own,
// unless updates need norms, which are of all servers.
//
// With norms an update is a Measure for each of them, to which all servers report their sums, and then the
// Apply; each entry has what the one before came to. Decisions that come meanwhile follow behind it.
//
// The log keeps what some server has not executed. While one stands still it grows by what the pushes in
// flight make, each worker's last, because no push counts without that server; clients' calls, of which there
// may be any number, are refused from kMostUnexecuted entries on.
//
// With a copy on another server (replicator.h), the copy's sequencer is told what this one is told, in the
// same order, and so decides the same (sequencer_copy.cc). Followers get an entry when the copy knows it:
// none has executed what a sequencer that takes this one's place has not decided.
//
// One per job, on ps/0 (or, asynchronously, on each server). Thread-safe.
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

// Bytes of a mark's token.
inline constexpr size_t kLongestMark = 256;

struct Mark {
  std::string token;
  bool snapshot = false;  // slots are kept with the values
};

// How far the log has come.
struct Progress {
  int64_t version = 0;
  UpdateCounters counters{};
  std::map<int, int64_t> positions{};  // [worker], of gradients in updates
  std::optional<WorkPosition> data{};  // in place of them where data is handed out
};

// Report the sums for `norms` of the update to `version`, which these gradients will make.
struct Measure {
  int64_t version = 0;
  std::vector<Gradient> contributors;
  Norms norms = Norms::kGradient;
};

// What the chief changes from this point of the log on.
struct Amendment {
  std::optional<float> learning_rate{};  // of all updates that follow
  bool end = false;                      // the version here is the job's last
};

struct LogEntry {
  using What = std::variant<Apply, Refuse, Release, Mark, Measure, Amendment>;
  int64_t index = 0;  // from 1
  What what;
  // Of a Measure or Apply after a Measure: what that came to, over all servers.
  VariableSquares known{};
};

// What a server has to add to the sums of the Measure at `index` of the log.
struct Sums {
  int64_t index = 0;
  std::vector<SliceSquares> slices;
};

// Where a server takes the log from.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Called in log order under the sequencer's lock: must only queue.
  virtual void Append(const LogEntry& entry) = 0;
  // Called after Append, outside the lock, by any thread: may execute what is queued.
  virtual void Flush() = 0;
  // The log ends here, and `reason` says why: no entry will come, subscribe again. Outside the lock.
  virtual void End(const absl::Status& reason) = 0;
};

// How a shard talks to the sequencer of its job, wherever that is.
class SequencerPort {
 public:
  virtual ~SequencerPort() = default;
  // The shard holds this push completely. Repeats do no harm.
  virtual void ReportStaged(const Gradient& gradient) = 0;
  // The shard has measured what it holds. Repeats do no harm.
  virtual void ReportSums(Sums sums) = 0;
  // The shard has executed the log up to `index`.
  virtual void ReportExecuted(int64_t index) = 0;
  // The shard waits at `index` for gradients that are to be sent again. Said as long as it does.
  virtual void ReportWaiting(int64_t index) = 0;
};

class Sequencer {
 public:
  // Entries that some server has not executed, or that wait behind a Measure.
  static constexpr size_t kMostUnexecuted = 16384;

  // `norms`: those that each update takes, in this order. `resumed`: how far the job had come before, at the
  // version that the policy begins with.
  Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers, absl::Span<const Norms> norms = {},
            Progress resumed = {});

  void Join(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // A worker that left or whose lease ran out.
  void Leave(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how far the job has come at the mark. RESOURCE_EXHAUSTED, naming the server that lags, when the
  // log is full.
  absl::StatusOr<Progress> WriteMark(const Mark& mark) ABSL_LOCKS_EXCLUDED(mutex_);
  // The chief's, worker 0: ABORTED unless `incarnation` is its current one and a member, RESOURCE_EXHAUSTED
  // as WriteMark(). Its numbers rise; one that is not above those before is a repeat and does nothing.
  absl::Status Amend(uint64_t incarnation, int64_t number, const Amendment& amendment)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Where the copy is kept up, and the server whose shard is beside this sequencer. Once, before anybody
  // subscribes; outlives the sequencer's use.
  void ReplicateTo(Replicator* replicator, int own_server) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the replicator all that this is.
  void Capture() ABSL_LOCKS_EXCLUDED(mutex_);
  // The other side. INVALID_ARGUMENT for what does not fit the job.
  absl::Status RestoreCopied(const v1::CopiedSequencer& copied) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Replay(const v1::SequencerEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends `server` the log from `next_index` on, replacing what it was subscribed with before. `epoch`: of
  // the server's part. FAILED_PRECONDITION when the log does not reach there. UNAVAILABLE, where another
  // subscription may be heard: the log has ended; a later epoch of the part has subscribed; with copies, also
  // when the entries before `next_index` have not been made here, for our copy has made them, and who leads
  // now is to be asked; and when later ones are not kept, for the subscriber's copy has executed them.
  absl::Status Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink, int64_t epoch = 0)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Only if `sink` is still the one subscribed.
  void Unsubscribe(int server, const LogSink* sink) ABSL_LOCKS_EXCLUDED(mutex_);

  // Its job has been replaced, or the server stops: ends all subscriptions, and refuses new ones with
  // UNAVAILABLE and `reason`.
  void End(absl::string_view reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // A push of no member is refused by the log; while that is full it is not answered.
  void OnStaged(int server, const Gradient& gradient) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ignored unless `sums` are of the Measure that is under way, and new.
  void OnSums(int server, Sums sums) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnExecuted(int server, int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  // What `server` has to measure waits there for workers that live, as long as it says so.
  void OnWaiting(int server, int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);

  // ABORTED, naming the servers whose sums are missing, when these have all been subscribed for 60 s of a
  // Measure by the clock of these calls, of which the owner makes several a second, and none of them has said
  // that it waits.
  absl::Status CheckMeasuring(TimePoint now) ABSL_LOCKS_EXCLUDED(mutex_);
  // This process has stood still for a while: what servers said meanwhile has not been heard, and their
  // minute begins anew.
  void WokeUp() ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t version() const ABSL_LOCKS_EXCLUDED(mutex_);
  UpdateCounters counters() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the gradients of `worker` that made updates, the farthest: 0 when there is none.
  int64_t position(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As UpdatePolicy::ClockOf().
  int64_t ClockOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As the policy's, where data is handed out.
  std::optional<Work> WorkOf(int worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<WorkPosition> DataPosition() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Workers that the next update waits for.
  std::vector<int> WaitingFor() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Servers that are not subscribed, or whose sums are missing.
  std::vector<int> MissingServers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Partial {  // held by some servers, not by all
    Gradient gradient;
    std::set<int> servers;
  };
  struct Worker {
    uint64_t incarnation = 0;
    bool member = false;
    int64_t last_step = 0;       // that the policy heard of
    int64_t last_amendment = 0;  // the chief's
  };
  struct Server {
    std::shared_ptr<LogSink> sink;
    int64_t executed = 0;
    int64_t sent = 0;   // index of the last entry that the sink has
    int64_t epoch = 0;  // of who subscribed
  };
  // The update whose Measure is the last entry of the log.
  struct Measuring {
    explicit Measuring(Apply to_apply) : apply(std::move(to_apply)) {}
    Apply apply;
    size_t norms = 0;                    // index in norms_
    int64_t index = 0;                   // of the Measure
    std::map<int, Sums> sums;            // [server that has reported]
    std::optional<TimePoint> seen_at{};  // by CheckMeasuring()
  };

  absl::Status CheckLogHasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress ProgressNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(std::vector<Decision> decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Behind all that was decided before: at once, or when the update that is being measured has been applied.
  void Append(LogEntry::What what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(LogEntry::What what, VariableSquares known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next entry of the update that is being measured: a Measure, or at last the Apply.
  void WriteMeasured(VariableSquares known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<int> UnmeasuredServers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the sinks the entries that they may have.
  void Hand() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the copy knows of, up to this entry, is for followers too.
  void Release(int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  // Who is to hear of a change, taken with it; and tells them, outside the lock.
  struct Change {
    std::vector<std::shared_ptr<LogSink>> sinks;
    Replicator* replicator = nullptr;  // null: no copy is kept up
    int64_t written = 0;               // index of the last entry
  };
  Change Changed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_);
  // Before each change: the copy shall make the same. Whether an event is wanted at all.
  bool copied() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(v1::SequencerEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  Replicator* replicator_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: no copy is kept up
  int own_server_ ABSL_GUARDED_BY(mutex_) = -1;   // with a replicator: executes before the copy knows
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;  // index of the last entry for the other servers
  std::optional<Measuring> measuring_ ABSL_GUARDED_BY(mutex_);
  std::deque<LogEntry::What> behind_ ABSL_GUARDED_BY(mutex_);  // decided, and waiting for that update
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);                 // why; OK: it has not
};

}  // namespace cairn::ps

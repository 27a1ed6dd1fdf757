// Decides, for all servers of a job, what happens in which order: the round log.
//
// Servers report which pushes they hold completely. When all of them hold one, the policy hears of it; what
// it decides becomes entries of one log, which every server executes in order. So the contributors of an
// update are the same for all variables, a version means the same everywhere, and a mark in the log is one
// consistent point of reading. In asynchronous jobs each server sequences itself, with a log of its own.
//
// One per job, on ps/0 (or, asynchronously, on each server). Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

struct Mark {
  std::string token;
};

struct LogEntry {
  int64_t index = 0;  // from 1
  std::variant<Apply, Refuse, Mark> what;
};

// Where a server takes the log from.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Called in log order under the sequencer's lock: must only queue.
  virtual void Append(const LogEntry& entry) = 0;
  // Called after Append, outside the lock, by any thread: may execute what is queued.
  virtual void Flush() = 0;
  // The job has been replaced by another try of the same run: no entry will come, subscribe anew. Outside the
  // lock.
  virtual void End() = 0;
};

// How a shard talks to the sequencer of its job, wherever that is.
class SequencerPort {
 public:
  virtual ~SequencerPort() = default;
  // The shard holds this push completely. Repeats do no harm.
  virtual void ReportStaged(const Gradient& gradient) = 0;
  // The shard has executed the log up to `index`.
  virtual void ReportExecuted(int64_t index) = 0;
};

class Sequencer {
 public:
  Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers);

  void Join(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  // A worker that left or whose lease ran out.
  void Leave(int worker, uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteMark(const std::string& token) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends `server` the log from `next_index` on, replacing what it was subscribed with before. False when the
  // log does not reach back so far, or has ended.
  bool Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink) ABSL_LOCKS_EXCLUDED(mutex_);
  // Only if `sink` is still the one subscribed.
  void Unsubscribe(int server, const LogSink* sink) ABSL_LOCKS_EXCLUDED(mutex_);

  // Its job has been replaced: ends all subscriptions, and lets no new one in.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnStaged(int server, const Gradient& gradient) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnExecuted(int server, int64_t index) ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t version() const ABSL_LOCKS_EXCLUDED(mutex_);
  UpdateCounters counters() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Workers that the next update waits for.
  std::vector<int> WaitingFor() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Servers that are not subscribed.
  std::vector<int> UnreachedServers() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Partial {  // held by some servers, not by all
    Gradient gradient;
    std::set<int> servers;
  };
  struct Worker {
    uint64_t incarnation = 0;
    bool member = false;
    int64_t last_step = 0;  // that the policy heard of
  };
  struct Server {
    std::shared_ptr<LogSink> sink;
    int64_t executed = 0;
  };

  void Decide(std::vector<Decision> decisions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(std::variant<Apply, Refuse, Mark> what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPartials(int worker, Refuse::Reason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<LogSink>> Sinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  const std::unique_ptr<UpdatePolicy> policy_ ABSL_PT_GUARDED_BY(mutex_);
  std::map<PushKey, Partial> partials_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);
  std::deque<LogEntry> log_ ABSL_GUARDED_BY(mutex_);  // entries that some server has not executed
  int64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::ps

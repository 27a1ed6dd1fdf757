// What a task does when: slices of time, in a lane for each kind of work, and the ends of arrows to other
// tasks' slices. trace_file.h makes a file of it, trace_session.h of a program's flags.
//
// Made in main and handed down as a pointer, null where nothing is recorded. Any thread records, into memory
// of its own: 64 bytes without a lock, for some tens of nanoseconds; outside the steps that are wanted one
// relaxed load. Each thread keeps its newest events, kEventsPerThread by default (4 MiB, taken as they are
// needed), and what falls out is counted. Collect() may come from any thread while others record.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/core/clock.h"
#include "common/core/mutex.h"

namespace cairn {

// The kinds of work, in the order in which they are shown. Those of which there are several at a time are
// told apart by an index: the server's, the worker's, the device's.
enum class TraceLane : uint8_t {
  // A worker's.
  kStep,      // whole steps, and in them what the trainer's thread does
  kLoad,      // batches prepared ahead
  kForward,   // [device]
  kBackward,  // [device] with the loss
  kPush,      // [server] from the first gradient that is sent to the last
  kWait,      // [server] from there to the first of its answer
  kPull,      // [server] values that come
  kEvaluate,
  kSnapshot,  // also a server's
  // A server's.
  kReceive,  // [worker] a push, from its begin to its end
  kCollect,  // from the first gradient of an update to its last
  kMeasure,  // norms
  kApply,
  kReply,
};
// "push ps/1"; without an index, -1, "apply".
std::string NameOf(TraceLane lane, int index);

// The two ends of an arrow have the same: a push to a server.
struct TraceFlow {
  int32_t worker = 0;
  int32_t server = 0;
  uint64_t incarnation = 0;
  int64_t number = 0;  // the worker's count of pushes

  friend bool operator==(const TraceFlow&, const TraceFlow&) = default;
};

struct TraceEvent {
  enum class Kind : uint8_t { kSlice, kFlowOut, kFlowIn };
  Kind kind = Kind::kSlice;
  TraceLane lane = TraceLane::kStep;
  int index = -1;
  const char* name = "";  // of a slice; outlives the recorder, or is kept by it
  int64_t begin = 0;      // nanoseconds of the steady clock
  int64_t end = 0;        // of a slice
  int64_t step = 0;       // of a slice: the version that the step makes; 0: none
  int64_t bytes = 0;      // of a slice: what it moves; 0: nothing
  TraceFlow flow{};       // of the other kinds
};

// Which steps are recorded: those that make the versions [first, last].
struct TraceSteps {
  int64_t first = 1;
  int64_t last = std::numeric_limits<int64_t>::max();
};

// How far another task's clock is ahead of ours, as the quickest question and answer told.
struct ClockOffset {
  int64_t ahead_nanos = 0;
  int64_t round_trip_nanos = 0;  // the truth is at most half of it away
};

class TraceRecorder {
 public:
  static constexpr size_t kEventsPerThread = 65536;
  // `task`: "worker/0". `events_per_thread`: of which a multiple of 1024 is kept, at least one.
  explicit TraceRecorder(std::string task, TraceSteps steps = {},
                         size_t events_per_thread = kEventsPerThread);
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  const std::string& task() const { return task_; }

  // The step that begins now is the one that makes this version.
  void AtStep(int64_t step);
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Steps that are wanted are under way.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // The last one that is wanted is behind us.
  bool over() const { return step() > steps_.last; }

  // A name for slices, which stays as long as the recorder does. For set-up: it allocates.
  const char* Keep(std::string name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether it is wanted was asked when the work began.
  void Record(const TraceEvent& event);

  // This task's clock for others: nanoseconds since 1970, as the system's clock had it when this was made,
  // counted on by the steady one.
  int64_t UnixNanos(TimePoint at) const;
  // `task`, asked at `sent`, said that its UnixNanos were `theirs`, and we heard it at `received`.
  void AddClockSample(const std::string& task, TimePoint sent, TimePoint received, int64_t theirs)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Collected {
    std::vector<TraceEvent> events;             // in no order
    int64_t lost = 0;                           // older ones, whose place was needed
    std::map<std::string, ClockOffset> clocks;  // [task]
  };
  Collected Collect() const ABSL_LOCKS_EXCLUDED(mutex_);
  // How many there were, the lost ones too.
  int64_t recorded() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Ring;
  struct LocalRing;
  Ring& OurRing() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string task_;
  const TraceSteps steps_;
  const size_t events_per_thread_;
  const uint64_t id_;  // no other recorder of this process has it
  const TimePoint steady_origin_;
  const int64_t unix_origin_;  // nanoseconds, at the same moment
  std::atomic<bool> active_;
  std::atomic<int64_t> step_{0};

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ClockOffset> clocks_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

// A slice from here to the end of the block.
class TraceSpan {
 public:
  struct What {
    int index = -1;
    int64_t step = -1;  // -1: the recorder's
    int64_t bytes = 0;
  };
  // `trace` may be null. `name` as TraceEvent's.
  TraceSpan(TraceRecorder* trace, TraceLane lane, const char* name) : TraceSpan(trace, lane, name, What()) {}
  TraceSpan(TraceRecorder* trace, TraceLane lane, const char* name, What what);
  ~TraceSpan() { End(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void End();

 private:
  TraceRecorder* trace_;  // null: not recorded, or not any more
  TraceEvent event_;
};

// Whether `trace`, which may be null, wants what begins now.
inline bool Wants(const TraceRecorder* trace) {
  return trace != nullptr && trace->active();
}

// A moment, as events have it.
int64_t TraceNanos(TimePoint at);

}  // namespace cairn

// Records the timeline of a task: slices of time in one lane per kind of work, and the ends of arrows that
// connect them to slices of other tasks. trace_file.h writes it to a file, trace_session.h creates it from a
// program's flags.
//
// Created in main and passed down as a pointer, which is null if nothing is recorded. Any thread may record.
// A thread writes 64 bytes per event into its own memory, without a lock, in some tens of nanoseconds;
// outside the steps to be recorded the cost is one relaxed load. Each thread keeps its newest events,
// kEventsPerThread by default (4 MiB, allocated as needed); overwritten events are counted. Any thread may
// call Collect() while others record.
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

// The kinds of work, in the order in which they are shown. Where there are several lanes of one kind, an
// index (of the server, the worker or the device) distinguishes them.
enum class TraceLane : uint8_t {
  // Lanes of a worker.
  kStep,      // whole steps, and within them the work of the trainer's thread
  kLoad,      // batches prepared ahead
  kForward,   // [device]
  kBackward,  // [device] including the loss
  kPush,      // [server] from the first gradient sent to the last
  kWait,      // [server] from the last gradient sent to the first chunk of the answer
  kPull,      // [server] receiving values
  kEvaluate,
  kSnapshot,  // also a lane of a server
  // Lanes of a server.
  kReceive,  // [worker] one push, from its begin to its end
  kCollect,  // from the first gradient of an update to its last
  kMeasure,  // computing norms
  kApply,
  kReply,
  kReadRows,  // rows of embedding tables, read beside the pushes
};
// "push ps/1"; for an index of -1, only the kind: "apply".
std::string NameOf(TraceLane lane, int index);

// Identifies an arrow, which stands for a push to a server. Both ends of the arrow have the same TraceFlow.
struct TraceFlow {
  int32_t worker = 0;
  int32_t server = 0;
  uint64_t incarnation = 0;
  int64_t number = 0;  // number of the push among the worker's pushes

  friend bool operator==(const TraceFlow&, const TraceFlow&) = default;
};

struct TraceEvent {
  enum class Kind : uint8_t { kSlice, kFlowOut, kFlowIn };
  Kind kind = Kind::kSlice;
  TraceLane lane = TraceLane::kStep;
  int index = -1;
  const char* name = "";  // slices only; must outlive the recorder (see TraceRecorder::Keep())
  int64_t begin = 0;      // nanoseconds of the steady clock
  int64_t end = 0;        // slices only
  int64_t step = 0;       // slices only: the version that the step produces; 0: none
  int64_t bytes = 0;      // slices only: bytes transferred; 0: none
  TraceFlow flow{};       // arrow ends only
};

// The steps to be recorded: those that produce the versions [first, last].
struct TraceSteps {
  int64_t first = 1;
  int64_t last = std::numeric_limits<int64_t>::max();
};

// How far another task's clock is ahead of this task's, measured by the request with the shortest round trip.
struct ClockOffset {
  int64_t ahead_nanos = 0;
  int64_t round_trip_nanos = 0;  // the error of `ahead_nanos` is at most half of this
};

class TraceRecorder {
 public:
  static constexpr size_t kEventsPerThread = 65536;
  // `task`: "worker/0". `events_per_thread` is rounded up to a multiple of 1024.
  explicit TraceRecorder(std::string task, TraceSteps steps = {},
                         size_t events_per_thread = kEventsPerThread);
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  const std::string& task() const { return task_; }

  // Announces that the step that produces version `step` begins now.
  void AtStep(int64_t step);
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Whether the current step is to be recorded.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Whether the last step to be recorded has ended.
  bool over() const { return step() > steps_.last; }

  // Returns a copy of `name`, for slices, that lives as long as the recorder. Allocates: meant for set-up.
  const char* Keep(std::string name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records unconditionally: the caller checked active() when the work began.
  void Record(const TraceEvent& event);

  // The clock of this task that other tasks see: nanoseconds since 1970. It is set from the system clock when
  // the recorder is created, and then follows the steady clock.
  int64_t UnixNanos(TimePoint at) const;
  // Adds a measurement of the clock of `task`. This task sent a request at `sent`, and the reply arrived at
  // `received`. `theirs` is the UnixNanos() of the other task in that reply.
  void AddClockSample(const std::string& task, TimePoint sent, TimePoint received, int64_t theirs)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Collected {
    std::vector<TraceEvent> events;             // in no particular order
    int64_t lost = 0;                           // older events that were overwritten
    std::map<std::string, ClockOffset> clocks;  // [task]
  };
  Collected Collect() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The number of events recorded, including lost ones.
  int64_t recorded() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Ring;
  struct LocalRing;
  Ring& OurRing() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string task_;
  const TraceSteps steps_;
  const size_t events_per_thread_;
  const uint64_t id_;  // unique among the recorders of this process
  const TimePoint steady_origin_;
  const int64_t unix_origin_;  // nanoseconds since 1970 at `steady_origin_`
  std::atomic<bool> active_;
  std::atomic<int64_t> step_{0};

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ClockOffset> clocks_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);
};

// Records a slice from its construction to End() or its destruction.
class TraceSpan {
 public:
  struct What {
    int index = -1;
    int64_t step = -1;  // -1: the recorder's current step
    int64_t bytes = 0;
  };
  // `trace` may be null. `name` must outlive the recorder, like TraceEvent::name.
  TraceSpan(TraceRecorder* trace, TraceLane lane, const char* name) : TraceSpan(trace, lane, name, What()) {}
  TraceSpan(TraceRecorder* trace, TraceLane lane, const char* name, What what);
  ~TraceSpan() { End(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void End();

 private:
  TraceRecorder* trace_;  // null: the slice is not recorded, or has ended
  TraceEvent event_;
};

// Whether work that begins now is to be recorded by `trace`, which may be null.
inline bool Wants(const TraceRecorder* trace) {
  return trace != nullptr && trace->active();
}

// A time point as events store it: nanoseconds of the steady clock.
int64_t TraceNanos(TimePoint at);

}  // namespace cairn

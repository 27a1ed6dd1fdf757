#include "common/trace/trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr size_t kWords = 8;           // words per event
constexpr size_t kChunkEvents = 1024;  // events per allocation: 64 KiB

using Words = std::array<uint64_t, kWords>;

Words Pack(const TraceEvent& event) {
  const bool slice = event.kind == TraceEvent::Kind::kSlice;
  return {static_cast<uint64_t>(event.begin),
          static_cast<uint64_t>(event.end),
          reinterpret_cast<uint64_t>(event.name),
          static_cast<uint64_t>(event.kind) | static_cast<uint64_t>(event.lane) << 8 |
              static_cast<uint64_t>(static_cast<uint32_t>(event.index)) << 32,
          static_cast<uint64_t>(event.step),
          static_cast<uint64_t>(slice ? event.bytes : event.flow.number),
          static_cast<uint64_t>(static_cast<uint32_t>(event.flow.worker)) |
              static_cast<uint64_t>(static_cast<uint32_t>(event.flow.server)) << 32,
          event.flow.incarnation};
}

TraceEvent Unpack(const Words& words) {
  TraceEvent event;
  event.begin = static_cast<int64_t>(words[0]);
  event.end = static_cast<int64_t>(words[1]);
  event.name = reinterpret_cast<const char*>(words[2]);
  event.kind = static_cast<TraceEvent::Kind>(words[3] & 0xFF);
  event.lane = static_cast<TraceLane>(words[3] >> 8 & 0xFF);
  event.index = static_cast<int32_t>(words[3] >> 32);
  event.step = static_cast<int64_t>(words[4]);
  if (event.kind == TraceEvent::Kind::kSlice) {
    event.bytes = static_cast<int64_t>(words[5]);
  } else {
    event.flow = {.worker = static_cast<int32_t>(words[6] & 0xFFFFFFFF),
                  .server = static_cast<int32_t>(words[6] >> 32),
                  .incarnation = words[7],
                  .number = static_cast<int64_t>(words[5])};
  }
  return event;
}

int64_t NanosOf(std::chrono::nanoseconds duration) {
  return duration.count();
}

uint64_t DrawId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

// The events of one thread. Only that thread writes. Others may read at the same time; `head_` shows them
// which events have been overwritten meanwhile.
class TraceRecorder::Ring {
 public:
  explicit Ring(size_t events) : chunks_((events + kChunkEvents - 1) / kChunkEvents) {}
  ~Ring() {
    for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
  }

  // Leave() releases the ring of a thread that has ended, so that another thread may reuse it. Take() returns
  // true if the caller now owns the ring.
  void Leave() { taken_.store(false, std::memory_order_release); }
  bool Take() { return !taken_.exchange(true, std::memory_order_acq_rel); }

  void Write(const TraceEvent& event) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    std::atomic<Chunk*>& place = chunks_[head / kChunkEvents % chunks_.size()];
    Chunk* chunk = place.load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      chunk = new Chunk;
      place.store(chunk, std::memory_order_release);
    }
    const Words words = Pack(event);
    std::atomic<uint64_t>* const to = &(*chunk)[head % kChunkEvents * kWords];
    // A reader that sees one of these words also sees the current value of head_ or a later one. It can tell
    // from this value that the previous event in this slot is overwritten.
    for (size_t i = 0; i < kWords; ++i) to[i].store(words[i], std::memory_order_release);
    head_.store(head + 1, std::memory_order_release);
  }

  uint64_t written() const { return head_.load(std::memory_order_acquire); }

  // Appends the stored events; returns how many have been overwritten. The oldest event of a full ring is
  // skipped and counted as overwritten, because its slot is written next.
  int64_t Read(std::vector<TraceEvent>& events) const {
    const uint64_t capacity = chunks_.size() * kChunkEvents;
    const uint64_t end = written();
    const uint64_t begin = end >= capacity ? end - capacity + 1 : 0;
    auto lost = static_cast<int64_t>(begin);
    for (uint64_t i = begin; i < end; ++i) {
      const Chunk& chunk = *chunks_[i / kChunkEvents % chunks_.size()].load(std::memory_order_acquire);
      Words words;
      for (size_t word = 0; word < kWords; ++word) {
        words[word] = chunk[i % kChunkEvents * kWords + word].load(std::memory_order_acquire);
      }
      if (i + capacity > written()) {
        events.push_back(Unpack(words));
      } else {
        ++lost;
      }
    }
    return lost;
  }

 private:
  using Chunk = std::array<std::atomic<uint64_t>, kChunkEvents * kWords>;
  std::vector<std::atomic<Chunk*>> chunks_;
  std::atomic<uint64_t> head_{0};  // events written
  std::atomic<bool> taken_{true};
};

// The calling thread's ring in the recorder that the thread used last. A program has one recorder. A
// LocalRing is thread_local, so it is not shared state.
struct TraceRecorder::LocalRing {
  ~LocalRing() {
    if (ring != nullptr) ring->Leave();
  }
  uint64_t recorder = 0;  // TraceRecorder::id_
  std::shared_ptr<Ring> ring;
};

std::string NameOf(TraceLane lane, int index) {
  const auto indexed = [index](const char* name, const char* whose) {
    return index < 0 ? std::string(name) : absl::StrCat(name, " ", whose, index);
  };
  switch (lane) {
    case TraceLane::kStep:
      return "step";
    case TraceLane::kLoad:
      return "load";
    case TraceLane::kForward:
      return indexed("forward", "device ");
    case TraceLane::kBackward:
      return indexed("backward", "device ");
    case TraceLane::kPush:
      return indexed("push", "ps/");
    case TraceLane::kWait:
      return indexed("wait", "ps/");
    case TraceLane::kPull:
      return indexed("pull", "ps/");
    case TraceLane::kEvaluate:
      return "evaluate";
    case TraceLane::kSnapshot:
      return "snapshot";
    case TraceLane::kReceive:
      return indexed("receive", "worker/");
    case TraceLane::kCollect:
      return "collect";
    case TraceLane::kMeasure:
      return "measure";
    case TraceLane::kApply:
      return "apply";
    case TraceLane::kReply:
      return "reply";
    case TraceLane::kReadRows:
      return "read rows";
  }
  return "";
}

int64_t TraceNanos(TimePoint at) {
  return NanosOf(at.time_since_epoch());
}

TraceRecorder::TraceRecorder(std::string task, TraceSteps steps, size_t events_per_thread)
    : task_(std::move(task)),
      steps_(steps),
      events_per_thread_(std::max<size_t>(1, events_per_thread)),
      id_(DrawId()),
      steady_origin_(std::chrono::steady_clock::now()),
      unix_origin_(NanosOf(std::chrono::system_clock::now().time_since_epoch())),
      active_(steps.first <= 1) {}

TraceRecorder::~TraceRecorder() = default;

void TraceRecorder::AtStep(int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  active_.store(step >= steps_.first && step <= steps_.last, std::memory_order_relaxed);
}

TraceRecorder::Ring& TraceRecorder::OurRing() {
  thread_local LocalRing local;
  if (local.recorder == id_) return *local.ring;
  if (local.ring != nullptr) local.ring->Leave();
  MutexLock lock(mutex_);
  const auto left = std::find_if(rings_.begin(), rings_.end(), [](const auto& ring) { return ring->Take(); });
  if (left != rings_.end()) {
    local.ring = *left;
  } else {
    local.ring = rings_.emplace_back(std::make_shared<Ring>(events_per_thread_));
  }
  local.recorder = id_;
  return *local.ring;
}

const char* TraceRecorder::Keep(std::string name) {
  MutexLock lock(mutex_);
  return names_.insert(std::move(name)).first->c_str();
}

void TraceRecorder::Record(const TraceEvent& event) {
  OurRing().Write(event);
}

int64_t TraceRecorder::UnixNanos(TimePoint at) const {
  return unix_origin_ + NanosOf(at - steady_origin_);
}

void TraceRecorder::AddClockSample(const std::string& task, TimePoint sent, TimePoint received,
                                   int64_t theirs) {
  const int64_t round_trip = NanosOf(received - sent);
  const ClockOffset sample = {.ahead_nanos = theirs - (UnixNanos(sent) + round_trip / 2),
                              .round_trip_nanos = round_trip};
  MutexLock lock(mutex_);
  const auto [known, added] = clocks_.emplace(task, sample);
  if (!added && sample.round_trip_nanos < known->second.round_trip_nanos) known->second = sample;
}

TraceRecorder::Collected TraceRecorder::Collect() const {
  Collected collected;
  MutexLock lock(mutex_);
  collected.clocks = clocks_;
  for (const auto& ring : rings_) collected.lost += ring->Read(collected.events);
  return collected;
}

int64_t TraceRecorder::recorded() const {
  MutexLock lock(mutex_);
  int64_t count = 0;
  for (const auto& ring : rings_) count += static_cast<int64_t>(ring->written());
  return count;
}

TraceSpan::TraceSpan(TraceRecorder* trace, TraceLane lane, const char* name, What what)
    : trace_(Wants(trace) ? trace : nullptr) {
  if (trace_ == nullptr) return;
  event_ = {.lane = lane,
            .index = what.index,
            .name = name,
            .begin = TraceNanos(std::chrono::steady_clock::now()),
            .step = what.step < 0 ? trace_->step() : what.step,
            .bytes = what.bytes};
}

void TraceSpan::End() {
  if (trace_ == nullptr) return;
  event_.end = TraceNanos(std::chrono::steady_clock::now());
  trace_->Record(event_);
  trace_ = nullptr;
}

}  // namespace cairn

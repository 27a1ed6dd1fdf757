#include "tests/support/cuda_on_cpu/blocks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"

constinit thread_local uint3 threadIdx, blockIdx;
constinit thread_local dim3 blockDim, gridDim;

namespace cairn::cuda_on_cpu {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr int kPoison = 0xFF;

// One CUDA thread of the block that runs.
struct Thread {
  enum State { kNew, kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

  State state = kNew;
  uint3 index;             // threadIdx
  Fiber* fiber = nullptr;  // that it waits on
  // For SyncWarp().
  unsigned mask = 0, wanted_lane = 0;
  uint64_t offered = 0;
  Exchanged received;
};

// Most threads never wait: one fiber runs them in turn, and only a thread that waits keeps it to itself.
class Runner {
 public:
  void Run(dim3 grid, dim3 block, size_t shared_bytes, absl::FunctionRef<void()> thread);
  void Wait(Thread::State state);
  [[noreturn]] void Die(const char* what) const;

  Thread& current() { return threads_[current_]; }
  unsigned current_index() const { return current_; }
  unsigned char* shared() { return shared_.get(); }

 private:
  static void FiberBody();

  void RunBlock();
  void RunWarp(unsigned first, unsigned last);
  bool ReleaseLanes(unsigned first, unsigned last);
  void Resume(Fiber* fiber);
  Fiber* IdleFiber();
  void SetCurrent(unsigned index);

  const absl::FunctionRef<void()>* body_ = nullptr;  // null while nothing runs
  std::vector<Thread> threads_;
  unsigned current_ = 0;
  unsigned next_new_ = 0, last_new_ = 0;  // of the warp in turn
  std::unique_ptr<unsigned char[]> shared_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Fiber* running_ = nullptr;
};

Runner& ThisRunner() {
  static thread_local Runner runner;
  return runner;
}

void Runner::Run(dim3 grid, dim3 block, size_t shared_bytes, absl::FunctionRef<void()> thread) {
  if (body_ != nullptr) Die("a kernel launches a kernel");
  const unsigned count = block.x * block.y * block.z;
  if (count == 0 || count > kMaxThreads) Die("a block of no threads, or of too many");
  body_ = &thread;
  gridDim = grid;
  blockDim = block;
  threads_.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    threads_[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  shared_ = std::make_unique_for_overwrite<unsigned char[]>(shared_bytes);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        if (shared_bytes > 0) std::memset(shared_.get(), kPoison, shared_bytes);
        RunBlock();
      }
    }
  }
  shared_ = nullptr;
  body_ = nullptr;
}

void Runner::RunBlock() {
  for (Thread& thread : threads_) thread.state = Thread::kNew;
  const auto count = static_cast<unsigned>(threads_.size());
  for (;;) {
    for (unsigned first = 0; first < count; first += kWarp) RunWarp(first, std::min(first + kWarp, count));
    unsigned done = 0;
    for (const Thread& thread : threads_) done += thread.state == Thread::kDone;
    if (done == count) return;
    if (done > 0) Die("a barrier is reached by only part of the block");
    for (Thread& thread : threads_) thread.state = Thread::kReady;
  }
}

// Until each of its threads is done or at the block's barrier.
void Runner::RunWarp(unsigned first, unsigned last) {
  do {
    next_new_ = threads_[first].state == Thread::kNew ? first : last;
    last_new_ = last;
    while (next_new_ < last_new_) Resume(IdleFiber());
    for (unsigned i = first; i < last; ++i) {
      if (threads_[i].state != Thread::kReady) continue;
      SetCurrent(i);
      Resume(threads_[i].fiber);
    }
  } while (ReleaseLanes(first, last));
}

// Exchanges the values of lanes that have met. False when none waits.
bool Runner::ReleaseLanes(unsigned first, unsigned last) {
  bool waiting = false, released = false;
  const unsigned lanes = last - first;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (threads_[first + lane].state != Thread::kAtWarpBarrier) continue;
    waiting = true;
    const unsigned mask = threads_[first + lane].mask;
    unsigned ballot = 0;
    bool complete = true;
    for (unsigned other = 0; other < lanes; ++other) {
      if ((mask >> other & 1) == 0) continue;
      const Thread& thread = threads_[first + other];
      complete = complete && thread.state == Thread::kAtWarpBarrier && thread.mask == mask;
      if (thread.offered != 0) ballot |= 1u << other;
    }
    if (!complete) continue;
    released = true;
    for (unsigned other = 0; other < lanes; ++other) {
      if ((mask >> other & 1) == 0) continue;
      Thread& thread = threads_[first + other];
      thread.received = {
          thread.wanted_lane < lanes ? threads_[first + thread.wanted_lane].offered : ~uint64_t{0}, ballot};
      thread.state = Thread::kReady;
    }
  }
  if (waiting && !released) Die("lanes of a warp wait for others that do not come");
  return waiting;
}

// Runs the new threads of a warp in turn, until one waits and keeps the fiber until it is done.
void Runner::FiberBody() {
  Runner& runner = ThisRunner();
  for (;;) {
    while (runner.next_new_ < runner.last_new_) {
      runner.SetCurrent(runner.next_new_++);
      (*runner.body_)();
      runner.current().state = Thread::kDone;
    }
    runner.idle_.push_back(runner.running_);
    Fiber::Yield();
  }
}

void Runner::Resume(Fiber* fiber) {
  running_ = fiber;
  fiber->Resume();
}

void Runner::Wait(Thread::State state) {
  if (body_ == nullptr) Die("a barrier outside of a kernel");
  current().state = state;
  current().fiber = running_;
  Fiber::Yield();
}

Fiber* Runner::IdleFiber() {
  if (idle_.empty()) return fibers_.emplace_back(std::make_unique<Fiber>(&FiberBody)).get();
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Runner::SetCurrent(unsigned index) {
  current_ = index;
  threadIdx = threads_[index].index;
}

void Runner::Die(const char* what) const {
  std::fprintf(stderr, "CUDA on a CPU: %s (block %u,%u,%u)\n", what, blockIdx.x, blockIdx.y, blockIdx.z);
  std::abort();
}

}  // namespace

void Run(dim3 grid, dim3 block, size_t shared_bytes, absl::FunctionRef<void()> thread) {
  ThisRunner().Run(grid, block, shared_bytes, thread);
}

unsigned char* DynamicShared() {
  return ThisRunner().shared();
}

void SyncBlock() {
  ThisRunner().Wait(Thread::kAtBlockBarrier);
}

Exchanged SyncWarp(unsigned mask, uint64_t value, unsigned wanted_lane) {
  Runner& runner = ThisRunner();
  if ((mask >> Lane() & 1) == 0) runner.Die("a lane waits for others in a mask without itself");
  Thread& thread = runner.current();
  thread.mask = mask;
  thread.offered = value;
  thread.wanted_lane = wanted_lane;
  runner.Wait(Thread::kAtWarpBarrier);
  return thread.received;
}

unsigned Lane() {
  return ThisRunner().current_index() % kWarp;
}

}  // namespace cairn::cuda_on_cpu

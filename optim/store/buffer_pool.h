// Reuses float buffers of one size, because the first touch of fresh memory costs more than the work on it.
// The budget counts every buffer that the pool has allocated, unused ones too. Thread-safe; buffers may
// outlive the pool.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "optim/store/memory_budget.h"

namespace cairn::optim {

class BufferPool {
 public:
  // Keeps at most `max_idle` unused buffers of `size` floats. `budget` is shared with the server's other
  // allocations, and with buffers that outlive the pool.
  BufferPool(int64_t size, size_t max_idle, std::shared_ptr<MemoryBudget> budget = Unlimited())
      : state_(std::make_shared<State>(size, max_idle, std::move(budget))) {}

  // A buffer with unspecified contents. It returns to the pool when it is released.
  std::shared_ptr<AlignedBuffer> Acquire() {
    std::unique_ptr<AlignedBuffer> buffer = state_->Take();
    if (buffer == nullptr) {
      state_->budget->Take(buffer_bytes());
      buffer = std::make_unique<AlignedBuffer>(state_->size);
    }
    return Shared(std::move(buffer));
  }
  // As Acquire(), but null if the buffer would exceed the budget.
  std::shared_ptr<AlignedBuffer> TryAcquire() {
    std::unique_ptr<AlignedBuffer> buffer = state_->Take();
    if (buffer == nullptr) {
      if (!state_->budget->TryTake(buffer_bytes())) return nullptr;
      buffer = std::make_unique<AlignedBuffer>(state_->size);
    }
    return Shared(std::move(buffer));
  }
  // Whether the budget allows one more buffer to be in use. An idle buffer needs no further budget.
  bool HasRoom() const { return state_->budget->HasRoomFor(buffer_bytes() - state_->idle_bytes()); }
  // The error for a buffer that exceeds the budget: see MemoryBudget::Refusal().
  absl::Status Refusal(absl::string_view what) const { return state_->budget->Refusal(what, buffer_bytes()); }
  void DropIdle() { state_->DropIdle(); }

  int64_t buffer_size() const { return state_->size; }
  int64_t buffer_bytes() const { return state_->bytes(); }

 private:
  struct State {
    State(int64_t size_in, size_t max_idle_in, std::shared_ptr<MemoryBudget> budget_in)
        : size(size_in), max_idle(max_idle_in), budget(std::move(budget_in)) {}
    ~State() { DropIdle(); }

    int64_t bytes() const { return size * static_cast<int64_t>(sizeof(float)); }
    int64_t idle_bytes() {
      MutexLock lock(mutex);
      return static_cast<int64_t>(idle.size()) * bytes();
    }
    void DropIdle() {
      std::vector<std::unique_ptr<AlignedBuffer>> dropped;  // freed outside the lock
      MutexLock lock(mutex);
      dropped.swap(idle);
      budget->Give(static_cast<int64_t>(dropped.size()) * bytes());
    }

    std::unique_ptr<AlignedBuffer> Take() {
      MutexLock lock(mutex);
      if (idle.empty()) return nullptr;
      auto buffer = std::move(idle.back());
      idle.pop_back();
      return buffer;
    }
    void Give(AlignedBuffer* released) {
      std::unique_ptr<AlignedBuffer> buffer(released);
      MutexLock lock(mutex);
      if (idle.size() < max_idle && budget->HasRoomFor(0)) {
        idle.push_back(std::move(buffer));
      } else {
        budget->Give(bytes());
      }
    }

    const int64_t size;
    const size_t max_idle;
    const std::shared_ptr<MemoryBudget> budget;
    Mutex mutex;
    std::vector<std::unique_ptr<AlignedBuffer>> idle ABSL_GUARDED_BY(mutex);
  };
  static std::shared_ptr<MemoryBudget> Unlimited() {
    return std::make_shared<MemoryBudget>(std::numeric_limits<int64_t>::max());
  }
  std::shared_ptr<AlignedBuffer> Shared(std::unique_ptr<AlignedBuffer> buffer) const {
    return {buffer.release(), [state = state_](AlignedBuffer* released) { state->Give(released); }};
  }
  std::shared_ptr<State> state_;
};

}  // namespace cairn::optim

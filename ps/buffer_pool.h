// Float buffers of one size that are used again instead of freed: the first touch of fresh memory costs more
// than what is done with it. Thread-safe; buffers may outlive the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"

namespace cairn::ps {

class BufferPool {
 public:
  // Keeps at most `max_idle` unused buffers of `size` floats.
  BufferPool(int64_t size, size_t max_idle) : state_(std::make_shared<State>(size, max_idle)) {}

  // A buffer with unspecified contents; goes back to the pool when released.
  std::shared_ptr<AlignedBuffer> Acquire() {
    std::unique_ptr<AlignedBuffer> buffer = state_->Take();
    if (buffer == nullptr) buffer = std::make_unique<AlignedBuffer>(state_->size);
    return {buffer.release(), [state = state_](AlignedBuffer* released) { state->Give(released); }};
  }

  int64_t buffer_size() const { return state_->size; }

 private:
  struct State {
    State(int64_t size_in, size_t max_idle_in) : size(size_in), max_idle(max_idle_in) {}

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
      if (idle.size() < max_idle) idle.push_back(std::move(buffer));
    }

    const int64_t size;
    const size_t max_idle;
    Mutex mutex;
    std::vector<std::unique_ptr<AlignedBuffer>> idle ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_;
};

}  // namespace cairn::ps

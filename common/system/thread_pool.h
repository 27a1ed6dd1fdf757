// A thread pool that runs one parallel loop at a time, and single tasks in between. Thread-safe; owned by
// main.
#pragma once

#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"

namespace cairn {

class ThreadPool {
 public:
  // `size`: the number of threads, including the caller of ParallelRun(); size - 1 threads are started.
  explicit ThreadPool(int size);
  // Blocks until all tasks are done.
  ~ThreadPool();

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // Runs body(0) ... body(size() - 1) in parallel and returns when all have returned. If the pool is busy
  // with another caller's loop or with a task, the caller runs all of them itself. Waking a thread costs
  // about 10 us.
  void ParallelRun(absl::FunctionRef<void(int)> body) ABSL_LOCKS_EXCLUDED(mutex_);
  // Queues `task` for one of the threads and returns true. Returns false, and does nothing, while a loop runs
  // or if the queue is full. The queue holds one waiting task per pool thread, and one more per idle thread.
  bool TrySchedule(absl::AnyInvocable<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  // The body of the current loop; null if no loop runs.
  const absl::FunctionRef<void(int)>* body_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;     // loops begun
  int at_work_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that have not finished the current loop
  // Tasks that no thread has begun.
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  int tasks_under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting threads
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace cairn

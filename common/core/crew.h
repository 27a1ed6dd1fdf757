// A few threads that lend a hand with one loop at a time, or take a task off a thread that has more to do.
// Thread-safe; owned by main.
#pragma once

#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"

namespace cairn {

class Crew {
 public:
  // `size`: the caller of Share() counts as one.
  explicit Crew(int size);
  // When all tasks are done.
  ~Crew();

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // body(0) ... body(size() - 1), at the same time; returns when all have. While the others are with another
  // caller, or one has a task, the caller does all of it. To wake them costs some 10 us each.
  void Share(absl::FunctionRef<void(int)> body) ABSL_LOCKS_EXCLUDED(mutex_);
  // One of the threads does `task` soon: true, where one has nothing to do, or fewer tasks wait than there
  // are threads, so that who ends one has the next. Else nothing happens.
  bool Take(absl::AnyInvocable<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  const absl::FunctionRef<void(int)>* body_ ABSL_GUARDED_BY(mutex_) =
      nullptr;  // null: nobody shares anything
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int at_work_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);  // that none has begun
  int tasks_under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that wait
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace cairn

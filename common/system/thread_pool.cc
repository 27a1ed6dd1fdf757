#include "common/system/thread_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn {

ThreadPool::ThreadPool(int size) {
  for (int i = 1; i < size; ++i) threads_.emplace_back(absl::StrCat("pool-", i), [this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  MutexLock lock(mutex_);
  ending_ = true;
  changed_.NotifyAll();
}

void ThreadPool::ParallelRun(absl::FunctionRef<void(int)> body) {
  bool alone;
  {
    MutexLock lock(mutex_);
    alone = body_ != nullptr || threads_.empty() || !tasks_.empty() || tasks_under_way_ > 0;
    if (!alone) {
      body_ = &body;
      ++turn_;
      at_work_ = size() - 1;
      changed_.NotifyAll();
    }
  }
  if (alone) {
    for (int i = 0; i < size(); ++i) body(i);
    return;
  }
  body(0);
  MutexLock lock(mutex_);
  while (at_work_ > 0) changed_.Wait(mutex_);  // until the slowest thread has finished its part of the loop
  body_ = nullptr;
}

bool ThreadPool::TrySchedule(absl::AnyInvocable<void()> task) {
  MutexLock lock(mutex_);
  const size_t room = static_cast<size_t>(idle_) + threads_.size();
  if (body_ != nullptr || tasks_.size() >= room) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();  // no loop runs, so only idle pool threads wait on `changed_`
  return true;
}

void ThreadPool::Work(int index) {
  int seen = 0;
  for (;;) {
    const absl::FunctionRef<void(int)>* body = nullptr;
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (turn_ == seen && tasks_.empty() && !ending_) changed_.Wait(mutex_);
      --idle_;
      if (turn_ != seen) {
        seen = turn_;
        body = body_;
      } else if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
        ++tasks_under_way_;
      } else {
        return;
      }
    }
    if (body == nullptr) {
      task();
      MutexLock lock(mutex_);
      --tasks_under_way_;
    } else {
      (*body)(index);
      MutexLock lock(mutex_);
      if (--at_work_ == 0) changed_.NotifyAll();
    }
  }
}

}  // namespace cairn

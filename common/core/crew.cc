#include "common/core/crew.h"

#include "absl/strings/str_cat.h"

namespace cairn {

Crew::Crew(int size) {
  for (int i = 1; i < size; ++i) threads_.emplace_back(absl::StrCat("crew-", i), [this, i] { Work(i); });
}

Crew::~Crew() {
  MutexLock lock(mutex_);
  ending_ = true;
  changed_.NotifyAll();
}

void Crew::Share(absl::FunctionRef<void(int)> body) {
  bool alone;
  {
    MutexLock lock(mutex_);
    alone = body_ != nullptr || threads_.empty();
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
  while (at_work_ > 0) changed_.Wait(mutex_);  // as long as the longest part
  body_ = nullptr;
}

void Crew::Work(int index) {
  int seen = 0;
  for (;;) {
    const absl::FunctionRef<void(int)>* body;
    {
      MutexLock lock(mutex_);
      while (turn_ == seen && !ending_) changed_.Wait(mutex_);
      if (turn_ == seen) return;
      seen = turn_;
      body = body_;
    }
    (*body)(index);
    MutexLock lock(mutex_);
    if (--at_work_ == 0) changed_.NotifyAll();
  }
}

}  // namespace cairn

#include "nn/replica/device_thread.h"

#include <utility>

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<DeviceThread>> DeviceThread::Start(
    const std::string& name, absl::AnyInvocable<absl::StatusOr<std::unique_ptr<kernels::Device>>()> make) {
  auto thread = std::unique_ptr<DeviceThread>(new DeviceThread(name));
  absl::Status status;
  thread->Run([&] {
    auto made = make();
    status = made.status();
    if (made.ok()) thread->device_ = *std::move(made);
  });
  if (!status.ok()) return status;
  return thread;
}

DeviceThread::DeviceThread(const std::string& name) : thread_(name, [this] { Loop(); }) {}

DeviceThread::~DeviceThread() {
  Post([this] { device_ = nullptr; });
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

void DeviceThread::Post(absl::AnyInvocable<void()> work) {
  {
    MutexLock lock(mutex_);
    asked_.push_back(std::move(work));
  }
  changed_.NotifyAll();
}

void DeviceThread::Run(absl::FunctionRef<void()> work) {
  bool done = false;
  Post([&] {
    work();
    MutexLock lock(mutex_);
    done = true;
    changed_.NotifyAll();
  });
  MutexLock lock(mutex_);
  while (!done) changed_.Wait(mutex_);
}

void DeviceThread::Loop() {
  for (;;) {
    absl::AnyInvocable<void()> work;
    {
      MutexLock lock(mutex_);
      while (asked_.empty() && !ending_) changed_.Wait(mutex_);
      if (asked_.empty()) return;
      work = std::move(asked_.front());
      asked_.pop_front();
    }
    work();
  }
}

}  // namespace cairn::nn

// A device and the one thread that makes it, uses it and ends it: what several devices of one worker need to
// work at the same time. Owned by whoever made it, outlives every replica on it; Post() and Run() from any
// thread.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "kernels/device.h"

namespace cairn::nn {

class DeviceThread {
 public:
  // `make` runs on the new thread; its error is ours. Blocks until it returns.
  static absl::StatusOr<std::unique_ptr<DeviceThread>> Start(
      const std::string& name, absl::AnyInvocable<absl::StatusOr<std::unique_ptr<kernels::Device>>()> make);
  // Does what was asked, then ends the device and the thread.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // To be used on the thread alone, but for its constants.
  kernels::Device& device() const { return *device_; }
  // Asks for `work`, which is done after all that was asked for before.
  void Post(absl::AnyInvocable<void()> work);
  // The same, and blocks until it is done. There is no limit to that: it is our own code on our own device.
  void Run(absl::FunctionRef<void()> work);

 private:
  explicit DeviceThread(const std::string& name);
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> asked_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<kernels::Device> device_;  // set before Start() returns
  Thread thread_;
};

}  // namespace cairn::nn

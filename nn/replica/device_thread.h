// A device, and the one thread that creates, uses and destroys it. It lets the devices of a worker run at the
// same time. It must outlive every replica on the device. Post() and Run() may be called from any thread.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"
#include "kernels/device.h"

namespace cairn::nn {

class DeviceThread {
 public:
  // `make` runs on the new thread; Start() blocks until it returns, and returns its error.
  static absl::StatusOr<std::unique_ptr<DeviceThread>> Start(
      const std::string& name, absl::AnyInvocable<absl::StatusOr<std::unique_ptr<kernels::Device>>()> make);
  // Runs the work posted so far, then destroys the device and ends the thread.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // For use on the device's thread only, except for the device's constant properties.
  kernels::Device& device() const { return *device_; }
  // Queues `work`. The thread runs work in the order in which it was posted.
  void Post(absl::AnyInvocable<void()> work);
  // Queues `work` and blocks until it has run. There is no timeout: it is our own code on our own device.
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

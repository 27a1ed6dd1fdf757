#include "nn/replica/device_thread.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/cpu/device.h"

namespace cairn::nn {
namespace {

TEST(DeviceThread, CreatesTheDeviceAndRunsWorkInOrderOnItsThread) {
  std::thread::id made_on;
  const auto thread = DeviceThread::Start("cpu:0", [&] {
    made_on = std::this_thread::get_id();
    return kernels::CreateCpuDevice(0, 1);
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  EXPECT_EQ((*thread)->device().name(), "/cpu:0");
  std::vector<int> done;
  std::thread::id last;
  (*thread)->Post([&] { done.push_back(1); });
  (*thread)->Post([&] { done.push_back(2); });
  (*thread)->Run([&] {
    done.push_back(3);
    last = std::this_thread::get_id();
  });
  EXPECT_EQ(done, std::vector<int>({1, 2, 3}));
  EXPECT_EQ(last, made_on);
  EXPECT_NE(last, std::this_thread::get_id());
}

TEST(DeviceThread, StartReturnsTheErrorOfTheDevice) {
  const auto thread = DeviceThread::Start("gpu:0", []() -> absl::StatusOr<std::unique_ptr<kernels::Device>> {
    return absl::ResourceExhaustedError("no memory left");
  });
  EXPECT_EQ(thread.status(), absl::ResourceExhaustedError("no memory left"));
}

TEST(DeviceThread, TheDestructorRunsPostedWork) {
  bool done = false;
  {
    const auto thread = DeviceThread::Start("cpu:0", [] { return kernels::CreateCpuDevice(0, 1); });
    (*thread)->Post([&] { done = true; });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace cairn::nn

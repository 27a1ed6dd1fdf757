#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/device.h"

namespace cairn::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CpuDevice, DescribesItself) {
  const auto device = CreateCpuDevice(1, 2).value();
  EXPECT_EQ(device->name(), "/cpu:1");
  EXPECT_THAT(device->Description(), StartsWith("/cpu:1: "));
  EXPECT_THAT(device->Description(), HasSubstr("2 threads"));
}

TEST(CpuDevice, ZeroThreadsAreRefused) {
  EXPECT_EQ(CreateCpuDevice(0, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuDevice, MemoryIsZeroed) {
  const auto device = CreateCpuDevice(0, 1).value();
  const auto memory = device->Allocate(1000, "test").value();
  for (int64_t i = 0; i < memory->num_floats(); ++i) ASSERT_EQ(memory->data()[i], 0.0f);
}

TEST(CpuDevice, RunningOutOfMemoryNamesThePurpose) {
  const auto device = CreateCpuDevice(0, 1).value();
  const auto status = device->Allocate(int64_t{1} << 50, "layer 'conv2d': output").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layer 'conv2d': output on /cpu:0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(": 0 B of "));
}

TEST(CpuDevice, FreedMemoryIsNoLongerInUse) {
  const auto device = CreateCpuDevice(0, 1).value();
  auto memory = device->Allocate(1000, "test").value();
  const auto full = device->Allocate(int64_t{1} << 50, "test").status();
  EXPECT_THAT(std::string(full.message()), HasSubstr(": 3.91 KiB of "));
  memory.reset();
  const auto empty = device->Allocate(int64_t{1} << 50, "test").status();
  EXPECT_THAT(std::string(empty.message()), HasSubstr(": 0 B of "));
}

}  // namespace
}  // namespace cairn::kernels

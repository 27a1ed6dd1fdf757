// The devices that this machine can test, and the traffic between reference tensors and device memory.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "tests/conformance/reference.h"

namespace cairn::conformance {

// A row per backend and setting: "cpu_1_thread", "cpu_2_threads".
struct Backend {
  std::string name;
  std::unique_ptr<kernels::Device> (*create)();
};
const std::vector<Backend>& AvailableBackends();

// A fixture for every backend; suites are instantiated with INSTANTIATE_CONFORMANCE(Suite).
class ConformanceTest : public testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = GetParam()->create(); }
  kernels::Device& device() { return *device_; }

  // Device memory holding `tensor` in this layout; padding channels are 0.
  std::unique_ptr<kernels::DeviceMemory> Put(const reference::Tensor& tensor,
                                             kernels::Layout layout = kernels::Layout::kRowMajor);
  std::unique_ptr<kernels::DeviceMemory> Put(const std::vector<double>& values);
  // Memory full of NaN: whoever adds to an output, or leaves a part of it unwritten, is found out.
  std::unique_ptr<kernels::DeviceMemory> Poisoned(int64_t num_floats);
  // Row-major values; fails the test when a padding channel is not 0.
  std::vector<float> Get(kernels::DeviceMemory& memory, const kernels::TensorDesc& desc);

 private:
  std::unique_ptr<kernels::Device> device_;
};

// Values that no rounding makes equal: uniform in [-1, 1), from (seed).
reference::Tensor RandomTensor(const Shape& shape, uint64_t seed);

// |got - expected| <= tolerance (1 + |expected|) everywhere. The tolerance grows with the number of terms
// that each value sums, whose order is the backend's own; with 0 terms it is 0.
void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, int64_t terms);

std::string BackendName(const testing::TestParamInfo<const Backend*>& info);
std::vector<const Backend*> BackendPointers();

#define INSTANTIATE_CONFORMANCE(Suite) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(BackendPointers()), BackendName)

}  // namespace cairn::conformance

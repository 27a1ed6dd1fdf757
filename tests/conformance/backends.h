// The devices that this machine can test, and copies between reference tensors and device memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda_backend.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "tests/conformance/reference.h"

namespace cairn::conformance {

// A row per backend and setting: "cpu_1_thread", "cuda_on_cpu", "cuda_on_cpu_bfloat16", "cpu_bfloat16" if the processor
// has it, and on a machine with a GPU "gpu_tf32" etc.
struct Backend {
  std::string name;
  std::unique_ptr<kernels::Device> (*create)();
  std::vector<kernels::Layout> layouts;  // of images; the first is row-major
  kernels::Precision precision = kernels::Precision::kFloat32;
  // Rounds the operands of products to this type, which activations do not have.
  std::optional<kernels::ElementType> rounds{};

  // The element type of activations.
  kernels::ElementType type() const;
  // That of the operands of products.
  kernels::ElementType operands() const { return rounds.value_or(type()); }
  // The relative error of a whole result that this precision allows: see ExpectClose().
  double tolerance() const;
};
const std::vector<Backend>& AvailableBackends();

// A fixture for every backend. Suites are instantiated with INSTANTIATE_CONFORMANCE(Suite) for the rows that
// compute in float32, with INSTANTIATE_16_BIT_CONFORMANCE(Suite) for those with activations of 16 bits, or
// with INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(Suite) for all; then activations must go through the functions
// with "Activation" in their name.
class ConformanceTest : public testing::TestWithParam<const Backend*> {
 protected:
  void SetUp() override { device_ = GetParam()->create(); }
  kernels::Device& device() { return *device_; }
  const std::vector<kernels::Layout>& layouts() const { return GetParam()->layouts; }
  kernels::ElementType type() const { return GetParam()->type(); }

  // Device memory with `tensor` in this layout; padding channels are 0.
  std::unique_ptr<kernels::DeviceMemory> Put(const reference::Tensor& tensor,
                                             kernels::Layout layout = kernels::Layout::kRowMajor);
  std::unique_ptr<kernels::DeviceMemory> Put(const std::vector<double>& values);
  std::unique_ptr<kernels::DeviceMemory> PutIntegers(const std::vector<int64_t>& values, DType type);
  // Row-major, with elements of this type, which must represent the values exactly: see Rounded().
  std::unique_ptr<kernels::DeviceMemory> PutAs(const reference::Tensor& tensor, kernels::ElementType type);
  // Memory full of NaN, of any type: it shows if an op adds to an output, or does not write all of it.
  std::unique_ptr<kernels::DeviceMemory> Poisoned(int64_t num_floats);
  // Row-major values; fails the test if a padding channel is not 0.
  std::vector<float> Get(kernels::DeviceMemory& memory, const kernels::TensorDesc& desc);
  std::vector<float> GetAs(kernels::DeviceMemory& memory, const Shape& shape, kernels::ElementType type);

  // With elements of the backend's type.
  kernels::TensorDesc ActivationDesc(const Shape& shape,
                                     kernels::Layout layout = kernels::Layout::kRowMajor) const {
    return {.shape = shape, .layout = layout, .type = type()};
  }
  // `tensor` must have been rounded to that type.
  std::unique_ptr<kernels::DeviceMemory> PutActivation(const reference::Tensor& tensor,
                                                       kernels::Layout layout = kernels::Layout::kRowMajor);
  std::vector<float> GetActivation(kernels::DeviceMemory& memory, const kernels::TensorDesc& desc);
  // ExpectNear() and ExpectGradient(), or for 16 bits what they allow.
  void ExpectActivation(const std::vector<float>& got, const std::vector<double>& expected,
                        int64_t terms) const;
  void ExpectActivationGradient(const std::vector<float>& got, std::vector<double>& values,
                                const std::function<double()>& f) const;

 private:
  std::unique_ptr<kernels::Device> device_;
};

// Random values, uniform in [-1, 1), from (seed); rounding makes no two of them equal.
reference::Tensor RandomTensor(const Shape& shape, uint64_t seed);

// Rounds to the nearest values of this type, ties to even. A reference must be given rounded values, so that
// it sees what the device sees.
reference::Tensor Rounded(reference::Tensor tensor, kernels::ElementType type);

// |got - expected| <= tolerance (1 + |expected|) for every value. The tolerance grows with the number of
// terms that each value sums, in the backend's own order; with 0 terms it is 0.
void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, int64_t terms);

// For an op that computes reference::GroupedConv2D(), with a bias.
kernels::Conv2DParams ParamsOf(const reference::Convolution& convolution, const kernels::TensorDesc& input);

// The root of the sum of (got - expected)^2 is at most this fraction of that of expected^2: what 16 bits
// allow.
void ExpectClose(const std::vector<float>& got, const std::vector<double>& expected, double tolerance = 1e-2);

std::string BackendName(const testing::TestParamInfo<const Backend*>& info);
// Those of one type for activations and products.
std::vector<const Backend*> AllBackends();
std::vector<const Backend*> Float32Backends();
std::vector<const Backend*> Backends16Bit();
// All backends that use the code of kernels/cuda, in every precision.
std::vector<const Backend*> CudaBackends();
// RoundingBackends: those that round the operands of products but not activations. ProductBackends: these and
// CudaBackends().
std::vector<const Backend*> RoundingBackends();
std::vector<const Backend*> ProductBackends();

#define INSTANTIATE_CONFORMANCE(Suite) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(Float32Backends()), BackendName)
#define INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(Suite) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(AllBackends()), BackendName)
#define INSTANTIATE_16_BIT_CONFORMANCE(Suite) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(Backends16Bit()), BackendName)

}  // namespace cairn::conformance

#include "tests/conformance/backends.h"

#include <cmath>
#include <limits>

#include "common/core/random.h"
#include "kernels/cpu/device.h"

namespace cairn::conformance {

using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

namespace {

template <int kThreads>
std::unique_ptr<kernels::Device> CreateCpu() {
  return kernels::CreateCpuDevice(0, kThreads).value();
}

// Where the row-major element `index` of this image lies.
int64_t Place(const TensorDesc& desc, int64_t index) {
  const int64_t block = kernels::BlockOf(desc.layout);
  if (block == 1) return index;
  const Shape& shape = desc.shape;
  const int64_t channel = index % shape[3], pixel = index / shape[3];
  const int64_t pixels = shape[1] * shape[2], example = pixel / pixels;
  const int64_t blocks = (shape[3] + block - 1) / block;
  return ((example * blocks + channel / block) * pixels + pixel % pixels) * block + channel % block;
}

}  // namespace

const std::vector<Backend>& AvailableBackends() {
  static const auto* const backends = new std::vector<Backend>{
#if !defined(__SANITIZE_ADDRESS__)  // which takes its time: two threads touch what one does, and more
      {"cpu_1_thread", CreateCpu<1>},
#endif
      {"cpu_2_threads", CreateCpu<2>}};
  return *backends;
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::Put(const Tensor& tensor, Layout layout) {
  const TensorDesc desc = {.shape = tensor.shape, .layout = layout};
  std::vector<float> host(static_cast<size_t>(desc.num_floats()), 0.0f);
  for (int64_t i = 0; i < tensor.shape.num_elements(); ++i) {
    host[static_cast<size_t>(Place(desc, i))] = static_cast<float>(tensor.at(i));
  }
  auto memory = device().Allocate(desc.num_floats(), "test").value();
  EXPECT_TRUE(device().CopyToDevice(host.data(), memory->data(), desc.num_floats() * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  return memory;
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::Put(const std::vector<double>& values) {
  Tensor tensor({static_cast<int64_t>(values.size())});
  tensor.values = values;
  return Put(tensor);
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::Poisoned(int64_t num_floats) {
  const std::vector<float> host(static_cast<size_t>(num_floats), std::numeric_limits<float>::quiet_NaN());
  auto memory = device().Allocate(num_floats, "test").value();
  EXPECT_TRUE(device().CopyToDevice(host.data(), memory->data(), num_floats * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  return memory;
}

std::vector<float> ConformanceTest::Get(kernels::DeviceMemory& memory, const TensorDesc& desc) {
  std::vector<float> host(static_cast<size_t>(desc.num_floats()));
  EXPECT_TRUE(device().CopyToHost(memory.data(), host.data(), desc.num_floats() * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  std::vector<float> values(static_cast<size_t>(desc.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    float& at = host[static_cast<size_t>(Place(desc, static_cast<int64_t>(i)))];
    values[i] = std::exchange(at, 0.0f);
  }
  for (float padding : host) {
    if (padding != 0.0f) {
      ADD_FAILURE() << "a padding channel of " << desc.ToString() << " holds " << padding;
      break;
    }
  }
  return values;
}

Tensor RandomTensor(const Shape& shape, uint64_t seed) {
  Random random(seed, "conformance");
  Tensor tensor(shape);
  for (double& value : tensor.values) value = random.NextUniform(-1, 1);
  return tensor;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, int64_t terms) {
  ASSERT_EQ(got.size(), expected.size());
  // A running sum of n random terms of size 1 is about sqrt(n) large, and each addition rounds it by up to
  // epsilon / 2 of itself: n additions err by n epsilon times a small factor. The root covers short sums and
  // blocked ones.
  const auto n = static_cast<double>(terms);
  const double tolerance = (n / 8 + 8 * std::sqrt(n)) * double{std::numeric_limits<float>::epsilon()};
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - expected[i]);
    ASSERT_LE(error, tolerance * (1 + std::fabs(expected[i])))
        << "element " << i << ": " << got[i] << " for " << expected[i];
  }
}

std::string BackendName(const testing::TestParamInfo<const Backend*>& info) {
  return info.param->name;
}

std::vector<const Backend*> BackendPointers() {
  std::vector<const Backend*> pointers;
  for (const Backend& backend : AvailableBackends()) pointers.push_back(&backend);
  return pointers;
}

}  // namespace cairn::conformance

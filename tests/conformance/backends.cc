#include "tests/conformance/backends.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {

using kernels::ElementType;
using kernels::Layout;
using kernels::Precision;
using kernels::TensorDesc;
using reference::Tensor;

namespace {

template <int kThreads>
std::unique_ptr<kernels::Device> CreateCpu() {
  return kernels::CreateCpuDevice(0, kThreads).value();
}

std::unique_ptr<kernels::Device> CreateCpuInBFloat16() {
  return kernels::CreateCpuDevice(0, 2, /*memory_limit_bytes=*/0, ElementType::kBFloat16).value();
}

// The kernels of the CUDA backend, without NVIDIA's libraries: tests/support/cuda_on_cpu.
template <Precision kPrecision>
std::unique_ptr<kernels::Device> CreateCudaOnCpu() {
  return kernels::cuda::CreateDevice({.precision = kPrecision}).value();
}

// A GPU, if there is one.
template <Precision kPrecision>
std::unique_ptr<kernels::Device> CreateGpu() {
  return kernels::CreateCudaDevice({.precision = kPrecision}).value();
}

// `value` rounded to `digits` binary digits. `lowest` is the exponent of the smallest normal number, as
// frexp() counts.
double RoundedTo(double value, int digits, int lowest) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int scale = digits - std::max(exponent, lowest);
  return std::ldexp(std::nearbyint(std::ldexp(value, scale)), -scale);
}

double RoundedTo(double value, ElementType type) {
  switch (type) {
    case ElementType::kBFloat16:
      return RoundedTo(value, 8, -125);
    case ElementType::kFloat16:
      return RoundedTo(value, 11, -13);
    default:
      break;
  }
  return static_cast<float>(value);
}

uint16_t Encode(float value, ElementType type) {
  uint16_t bits = 0;
  if (type == ElementType::kFloat16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, sizeof(bits));
  } else {  // the upper half of a float
    uint32_t whole;
    std::memcpy(&whole, &value, sizeof(whole));
    bits = static_cast<uint16_t>(whole >> 16);
  }
  return bits;
}

float Decode(uint16_t bits, ElementType type) {
  if (type == ElementType::kFloat16) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof(half));
    return static_cast<float>(half);
  }
  const uint32_t whole = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &whole, sizeof(value));
  return value;
}

// The index of the row-major element `index` in this image's layout.
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

ElementType Backend::type() const {
  return precision == Precision::kBFloat16  ? ElementType::kBFloat16
         : precision == Precision::kFloat16 ? ElementType::kFloat16
                                            : ElementType::kFloat32;
}

double Backend::tolerance() const {
  switch (precision) {
    case Precision::kFloat32:
      return 1e-5;
    case Precision::kTensorFloat32:
      return 1e-3;
    case Precision::kBFloat16:
    case Precision::kFloat16:
      break;
  }
  return 1e-2;
}

namespace {
std::vector<Backend> FindBackends() {
  const std::vector<Layout> all = {Layout::kRowMajor, Layout::kBlocked8, Layout::kBlocked16};
  const std::vector<Layout> row_major = {Layout::kRowMajor};
  std::vector<Backend> backends = {
#if !defined(__SANITIZE_ADDRESS__)  // which takes its time: two threads touch what one does, and more
      {"cpu_1_thread", CreateCpu<1>, all},
#endif
      {"cpu_2_threads", CreateCpu<2>, all},
      {"cuda_on_cpu", CreateCudaOnCpu<Precision::kFloat32>, row_major},
      {"cuda_on_cpu_bfloat16", CreateCudaOnCpu<Precision::kBFloat16>, row_major, Precision::kBFloat16},
      {"cuda_on_cpu_float16", CreateCudaOnCpu<Precision::kFloat16>, row_major, Precision::kFloat16}};
  if (kernels::DescribeCpu().bfloat16) {
    backends.push_back(
        {"cpu_bfloat16", CreateCpuInBFloat16, row_major, Precision::kFloat32, ElementType::kBFloat16});
  }
  if (!kernels::CountCudaDevices().ok()) return backends;
  backends.push_back({"gpu_fp32", CreateGpu<Precision::kFloat32>, row_major});
  backends.push_back(
      {"gpu_tf32", CreateGpu<Precision::kTensorFloat32>, row_major, Precision::kTensorFloat32});
  backends.push_back({"gpu_bf16", CreateGpu<Precision::kBFloat16>, row_major, Precision::kBFloat16});
  backends.push_back({"gpu_fp16", CreateGpu<Precision::kFloat16>, row_major, Precision::kFloat16});
  return backends;
}
}  // namespace

const std::vector<Backend>& AvailableBackends() {
  static const auto* const backends = new std::vector<Backend>(FindBackends());
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

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::PutAs(const Tensor& tensor, ElementType type) {
  if (type == ElementType::kFloat32) return Put(tensor);
  const TensorDesc desc = {.shape = tensor.shape, .layout = Layout::kRowMajor, .type = type};
  std::vector<uint16_t> host(static_cast<size_t>(desc.num_floats() * 2));
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    host[i] = Encode(static_cast<float>(tensor.values[i]), type);
  }
  auto memory = device().Allocate(desc.num_floats(), "test").value();
  EXPECT_TRUE(device().CopyToDevice(host.data(), memory->data(), desc.num_floats() * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  return memory;
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::PutIntegers(const std::vector<int64_t>& values,
                                                                    DType type) {
  const TensorDesc desc = {.shape = {static_cast<int64_t>(values.size())}, .type = type};
  std::vector<float> host(static_cast<size_t>(desc.num_floats()));
  WithIntegerType(type, [&](auto zero) {
    const std::vector<decltype(zero)> narrow(values.begin(), values.end());
    std::memcpy(host.data(), narrow.data(), narrow.size() * sizeof(zero));
  });
  auto memory = device().Allocate(desc.num_floats(), "test").value();
  EXPECT_TRUE(device().CopyToDevice(host.data(), memory->data(), desc.num_floats() * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  return memory;
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::Poisoned(int64_t num_floats) {
  const std::vector<unsigned char> host(static_cast<size_t>(num_floats) * 4, 0xFF);
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

std::vector<float> ConformanceTest::GetAs(kernels::DeviceMemory& memory, const Shape& shape,
                                          ElementType type) {
  const TensorDesc desc = {.shape = shape, .layout = Layout::kRowMajor, .type = type};
  if (type == ElementType::kFloat32) return Get(memory, desc);
  std::vector<uint16_t> host(static_cast<size_t>(desc.num_floats() * 2));
  EXPECT_TRUE(device().CopyToHost(memory.data(), host.data(), desc.num_floats() * 4).ok());
  EXPECT_TRUE(device().Synchronize().ok());
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = Decode(host[i], type);
  return values;
}

std::unique_ptr<kernels::DeviceMemory> ConformanceTest::PutActivation(const Tensor& tensor, Layout layout) {
  return type() == ElementType::kFloat32 ? Put(tensor, layout) : PutAs(tensor, type());
}

std::vector<float> ConformanceTest::GetActivation(kernels::DeviceMemory& memory, const TensorDesc& desc) {
  EXPECT_EQ(desc.type, type());
  return type() == ElementType::kFloat32 ? Get(memory, desc) : GetAs(memory, desc.shape, type());
}

void ConformanceTest::ExpectActivation(const std::vector<float>& got, const std::vector<double>& expected,
                                       int64_t terms) const {
  type() == ElementType::kFloat32 ? ExpectNear(got, expected, terms) : ExpectClose(got, expected);
}

void ConformanceTest::ExpectActivationGradient(const std::vector<float>& got, std::vector<double>& values,
                                               const std::function<double()>& f) const {
  type() == ElementType::kFloat32 ? ExpectGradient(got, values, f) : ExpectGradientClose(got, values, f);
}

Tensor RandomTensor(const Shape& shape, uint64_t seed) {
  Random random(seed, "conformance");
  Tensor tensor(shape);
  for (double& value : tensor.values) value = random.NextUniform(-1, 1);
  return tensor;
}

Tensor Rounded(Tensor tensor, ElementType type) {
  for (double& value : tensor.values) value = RoundedTo(value, type);
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

kernels::Conv2DParams ParamsOf(const reference::Convolution& convolution, const kernels::TensorDesc& input) {
  return {.input = input,
          .filters = convolution.filters,
          .kernel_height = convolution.size,
          .kernel_width = convolution.size,
          .stride_height = convolution.stride,
          .stride_width = convolution.stride,
          .dilation_height = convolution.dilation,
          .dilation_width = convolution.dilation,
          .groups = convolution.groups,
          .padding = convolution.same ? kernels::Padding::kSame : kernels::Padding::kValid};
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << "element " << i;
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(size));
}

std::string BackendName(const testing::TestParamInfo<const Backend*>& info) {
  return info.param->name;
}

namespace {
template <typename Wanted>
std::vector<const Backend*> BackendsWhere(const Wanted& wanted) {
  std::vector<const Backend*> pointers;
  for (const Backend& backend : AvailableBackends()) {
    if (wanted(backend)) pointers.push_back(&backend);
  }
  return pointers;
}
}  // namespace

std::vector<const Backend*> AllBackends() {
  return BackendsWhere([](const Backend& b) { return !b.rounds.has_value(); });
}
std::vector<const Backend*> Float32Backends() {
  return BackendsWhere(
      [](const Backend& b) { return b.precision == Precision::kFloat32 && !b.rounds.has_value(); });
}
std::vector<const Backend*> Backends16Bit() {
  return BackendsWhere([](const Backend& b) { return b.type() != ElementType::kFloat32; });
}
std::vector<const Backend*> CudaBackends() {
  return BackendsWhere([](const Backend& b) { return b.name.substr(0, 3) != "cpu"; });
}
std::vector<const Backend*> RoundingBackends() {
  return BackendsWhere([](const Backend& b) { return b.rounds.has_value(); });
}
std::vector<const Backend*> ProductBackends() {
  return BackendsWhere([](const Backend& b) { return b.name.substr(0, 3) != "cpu" || b.rounds.has_value(); });
}

}  // namespace cairn::conformance

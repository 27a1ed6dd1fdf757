// A^10 + B^10 for two N x N matrices on one GPU: by the dense layer's op of the CUDA backend, and by cuBLAS
// called directly, in turn on the same memory. Nine products for each power, one after another.
//   matrix_power_bench [--size 10000] [--precision tf32]
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cuda_backend.h"
#include "kernels/ops.h"

namespace cairn {
namespace {

struct Options {
  int64_t size = 10000;
  std::string precision = "tf32";
  int rounds = 5;
};
constexpr int kPower = 10;

using Memory = std::unique_ptr<kernels::DeviceMemory>;

// Every way computes sum = a^kPower + b^kPower; `power` and `other` are room for what lies between.
struct Matrices {
  Memory a, b, power, other, a_to_power, sum;  // [size, size], row-major
};

absl::Status ToStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cublasGetStatusString(status)));
}

// Uniform with rows that sum to about 1: then its powers neither grow nor vanish.
absl::StatusOr<Memory> RandomMatrix(kernels::Device& device, int64_t size, uint64_t seed) {
  Random random(seed, "bench/matrix");
  std::vector<float> host(static_cast<size_t>(size * size));
  for (float& value : host) value = random.NextUniform() * 2 / static_cast<float>(size);
  CAIRN_ASSIGN_OR_RETURN(Memory memory, device.Allocate(size * size, "matrix"));
  CAIRN_RETURN_IF_ERROR(
      device.CopyToDevice(host.data(), memory->data(), size * size * int64_t{sizeof(float)}));
  CAIRN_RETURN_IF_ERROR(device.Synchronize());
  return memory;
}

// z = x y
using Multiply = std::function<absl::Status(const float* x, const float* y, float* z)>;

// `to` = base^kPower; `between` is overwritten.
absl::Status Power(const Multiply& multiply, const float* base, float* between, float* to) {
  static_assert(kPower % 2 == 0, "the last of an odd number of products writes where the first did");
  const float* last = base;
  for (int product = 0; product < kPower - 1; ++product) {
    CAIRN_RETURN_IF_ERROR(multiply(last, base, to));
    last = to;
    std::swap(to, between);
  }
  return absl::OkStatus();
}

absl::Status PowersOfBoth(const Multiply& multiply, const Matrices& m) {
  CAIRN_RETURN_IF_ERROR(Power(multiply, m.a->data(), m.other->data(), m.a_to_power->data()));
  return Power(multiply, m.b->data(), m.other->data(), m.power->data());
}

class Backend {
 public:
  static absl::StatusOr<Backend> Create(kernels::Device& device, int64_t size) {
    const kernels::TensorDesc matrix = {.shape = {size, size}};
    Backend backend(device);
    CAIRN_ASSIGN_OR_RETURN(
        backend.dense_,
        device.ops().MakeDense(
            {.input = matrix, .units = size, .use_bias = false, .needs_input_gradient = false}));
    if (!backend.dense_->output().is_plain()) {
      return absl::InvalidArgumentError("powers are for fp32 and tf32, whose products are float32");
    }
    CAIRN_ASSIGN_OR_RETURN(backend.add_, device.ops().MakeAdd(matrix, 2));
    return backend;
  }

  absl::Status Run(const Matrices& m) {
    CAIRN_RETURN_IF_ERROR(PowersOfBoth(
        [&](const float* x, const float* y, float* z) { return dense_->Forward(x, y, nullptr, z); }, m));
    const float* const terms[] = {m.a_to_power->data(), m.power->data()};
    CAIRN_RETURN_IF_ERROR(add_->Forward(terms, m.sum->data()));
    return device_->Synchronize();
  }

 private:
  explicit Backend(kernels::Device& device) : device_(&device) {}

  kernels::Device* device_;
  std::unique_ptr<kernels::LinearOp> dense_;
  std::unique_ptr<kernels::NaryOp> add_;
};

class Cublas {
 public:
  static absl::StatusOr<std::unique_ptr<Cublas>> Create(int64_t size, kernels::Precision precision) {
    auto cublas = std::unique_ptr<Cublas>(new Cublas(
        static_cast<int>(size),
        precision == kernels::Precision::kFloat32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32));
    CAIRN_RETURN_IF_ERROR(ToStatus(cublasCreate(&cublas->handle_), "cublasCreate"));
    if (const cudaError_t error = cudaStreamCreateWithFlags(&cublas->stream_, cudaStreamNonBlocking);
        error != cudaSuccess) {
      return absl::InternalError(cudaGetErrorString(error));
    }
    CAIRN_RETURN_IF_ERROR(ToStatus(cublasSetStream(cublas->handle_, cublas->stream_), "cublasSetStream"));
    return cublas;
  }
  ~Cublas() {
    if (handle_ != nullptr) cublasDestroy(handle_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  absl::Status Run(const Matrices& m) {
    const float one = 1, zero = 0;
    CAIRN_RETURN_IF_ERROR(PowersOfBoth(
        [&](const float* x, const float* y, float* z) {
          // Columns first, as cuBLAS has it: z^T = y^T x^T.
          return ToStatus(
              cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size_, size_, size_, &one, y, CUDA_R_32F, size_,
                           x, CUDA_R_32F, size_, &zero, z, CUDA_R_32F, size_, compute_, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
        },
        m));
    CAIRN_RETURN_IF_ERROR(
        ToStatus(cublasSgeam(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size_, size_, &one, m.a_to_power->data(),
                             size_, &one, m.power->data(), size_, m.sum->data(), size_),
                 "cublasSgeam"));
    if (const cudaError_t error = cudaStreamSynchronize(stream_); error != cudaSuccess) {
      return absl::InternalError(cudaGetErrorString(error));
    }
    return absl::OkStatus();
  }

 private:
  Cublas(int size, cublasComputeType_t compute) : size_(size), compute_(compute) {}

  const int size_;
  const cublasComputeType_t compute_;
  cublasHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

absl::StatusOr<std::vector<float>> Download(kernels::Device& device, const Memory& memory) {
  std::vector<float> host(static_cast<size_t>(memory->num_floats()));
  CAIRN_RETURN_IF_ERROR(
      device.CopyToHost(memory->data(), host.data(), memory->num_floats() * int64_t{sizeof(float)}));
  CAIRN_RETURN_IF_ERROR(device.Synchronize());
  return host;
}

// |got - expected| / |expected|; NaN passes no test.
double RelativeError(const std::vector<float>& got, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = double{got[i]} - double{expected[i]};
    difference += error * error;
    norm += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(difference / norm);
}

absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) {
  const auto start = std::chrono::steady_clock::now();
  CAIRN_RETURN_IF_ERROR(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const kernels::Precision precision, kernels::ParsePrecision(options.precision));
  CAIRN_ASSIGN_OR_RETURN(const auto device, kernels::CreateCudaDevice({.precision = precision}));
  std::printf("%s\n", device->Description().c_str());
  CAIRN_ASSIGN_OR_RETURN(Backend backend, Backend::Create(*device, options.size));
  CAIRN_ASSIGN_OR_RETURN(const auto cublas, Cublas::Create(options.size, precision));
  Matrices m;
  CAIRN_ASSIGN_OR_RETURN(m.a, RandomMatrix(*device, options.size, 1));
  CAIRN_ASSIGN_OR_RETURN(m.b, RandomMatrix(*device, options.size, 2));
  for (Memory* const memory : {&m.power, &m.other, &m.a_to_power, &m.sum}) {
    CAIRN_ASSIGN_OR_RETURN(*memory, device->Allocate(options.size * options.size, "matrix"));
  }

  // The first run of both warms up; their results are compared.
  CAIRN_RETURN_IF_ERROR(cublas->Run(m));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> expected, Download(*device, m.sum));
  CAIRN_RETURN_IF_ERROR(backend.Run(m));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> got, Download(*device, m.sum));
  const double error = RelativeError(got, expected);
  const double tolerance = precision == kernels::Precision::kFloat32 ? 1e-5 : 1e-3;
  if (!(error <= tolerance)) {
    return absl::InternalError(
        absl::StrCat("the sums differ by ", error, " of their norm, more than ", tolerance));
  }

  // Without the additions of the sum, which are negligible.
  const double operations = 2 * (kPower - 1) * 2 * std::pow(static_cast<double>(options.size), 3);
  std::vector<double> ours, theirs, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    CAIRN_ASSIGN_OR_RETURN(const double peer, SecondsOf([&] { return cublas->Run(m); }));
    CAIRN_ASSIGN_OR_RETURN(const double own, SecondsOf([&] { return backend.Run(m); }));
    ours.push_back(operations / own / 1e12);
    theirs.push_back(operations / peer / 1e12);
    ratios.push_back(peer / own);
  }
  std::printf(
      "A^%d + B^%d, %lld x %lld: %.1f TFLOP/s, cuBLAS %.1f, ratio %.3f (%.3f to %.3f), %.1f ms; they differ "
      "by %.1e\n",
      kPower, kPower, static_cast<long long>(options.size), static_cast<long long>(options.size),
      Median(ours), Median(theirs), Median(ratios), *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), operations / Median(ours) / 1e9, error);
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Options options;
  CLI::App app("Sums of matrix powers on a GPU, against cuBLAS called directly");
  app.add_option("--size", options.size, "Rows and columns")
      ->check(CLI::Range(1, 30000))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "fp32 or tf32")->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = cairn::Run(options);
  if (!status.ok()) std::fprintf(stderr, "matrix_power_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

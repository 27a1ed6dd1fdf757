#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/memory/aligned_buffer.h"
#include "common/system/cores.h"
#include "kernels/ops.h"
#include "nn/replica/device_thread.h"
#include "worker/devices/device_choice.h"
#include "worker/options/device_flags.h"

namespace cairn::cli {
namespace {

constexpr char kMatpowProgram[] = "cairn matpow";

// A matrix and its power on one device.
struct Power {
  nn::DeviceThread* thread = nullptr;
  AlignedBuffer base{}, result{};  // [size, size], row-major, host
  // Device memory: the base, and two buffers for alternating products.
  std::unique_ptr<kernels::DeviceMemory> memory[3]{};
  std::unique_ptr<kernels::LinearOp> product{};
  absl::Status status{};
};

// `cairn matpow`: computes A^n + B^n. The powers are computed on one device, or concurrently on two devices,
// and their sum on another device. This is the first example of TensorFlow's device guides.
class MatpowCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"--size N", &size_, "Rows and columns of the matrices", WholeNumberBetween(1, 30000)},
                   {"--power N", &power_, "Exponent n", WholeNumberFrom(1)},
                   {"--devices NAME[,NAME]", &devices_,
                    "Devices that compute the powers: one for both powers, or one for each"},
                   {"--sum_device NAME", &sum_device_, "Device that computes the sum"},
                   {"--seed N", &seed_, "Seed of the random matrices"},
                   {"--log_device_placement", &log_placement_, "Log the device of each operation"}});
    app.get_option("--devices")->expected(1, 2)->default_str("auto");
    worker::AddCpuDevicesFlag(app, cpu_devices_);
    worker::AddSoftPlacementFlag(app, allow_soft_placement_);
    worker::AddVisibleDevicesFlag(app, visible_devices_);
  }

  int Run(const CLI::App&) override {
    worker::UseVisibleDevices(visible_devices_);
    const absl::Status status = Compute();
    if (status.ok()) return 0;
    if (absl::IsInvalidArgument(status))
      return static_cast<int>(UsageError(kMatpowProgram, status.message()));
    std::fprintf(stderr, "%s: %s\n", kMatpowProgram, std::string(status.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }

 private:
  absl::Status Compute() {
    const worker::DeviceMakers backends = worker::TheBackends();
    const worker::DeviceRequest request = {.allow_soft_placement = allow_soft_placement_,
                                           .cpu_devices = cpu_devices_,
                                           .threads = UsableCores(),
                                           .task = {"localhost", 0}};
    Power powers[2];
    for (size_t i = 0; i < 2; ++i) {
      const std::string& name = devices_[std::min(i, devices_.size() - 1)];
      CAIRN_ASSIGN_OR_RETURN(powers[i].thread, Find(name, "--devices", request, backends));
      Print(i == 0 ? "a^n" : "b^n", *powers[i].thread);
    }
    CAIRN_ASSIGN_OR_RETURN(nn::DeviceThread* const adder,
                           Find(sum_device_, "--sum_device", request, backends));
    Print("sum", *adder);
    for (size_t i = 0; i < 2; ++i) {
      Fill(powers[i], i);
      powers[i].thread->Run([&] { powers[i].status = Prepare(powers[i]); });
      CAIRN_RETURN_IF_ERROR(powers[i].status);
    }

    const auto start = std::chrono::steady_clock::now();
    for (Power& power : powers) {
      power.thread->Post([&] { power.status = Raise(power); });
    }
    for (Power& power : powers) power.thread->Run([] {});
    for (const Power& power : powers) CAIRN_RETURN_IF_ERROR(power.status);
    AlignedBuffer sum(elements());
    absl::Status added;
    adder->Run([&] { added = Add(adder->device(), powers[0].result, powers[1].result, sum); });
    CAIRN_RETURN_IF_ERROR(added);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

    const double operations = 2.0 * 2 * static_cast<double>(power_ - 1) * std::pow(size_, 3);
    std::printf(
        "A^%lld + B^%lld, %lld x %lld: %.3f s, %.1f GFLOP/s; rows differ by %.1e from their sums in double\n",
        static_cast<long long>(power_), static_cast<long long>(power_), static_cast<long long>(size_),
        static_cast<long long>(size_), elapsed.count(), operations / elapsed.count() / 1e9,
        Error(powers, sum));
    return absl::OkStatus();
  }

  int64_t elements() const { return size_ * size_; }

  // The thread of the device called `name`; each device has one thread.
  absl::StatusOr<nn::DeviceThread*> Find(const std::string& name, const char* flag,
                                         const worker::DeviceRequest& request,
                                         const worker::DeviceMakers& backends) {
    CAIRN_ASSIGN_OR_RETURN(const worker::FoundDevice found,
                           worker::FindDevice(name, flag, request, backends));
    for (const std::string& warning : found.warnings) {
      std::fprintf(stderr, "%s: %s; it is on %s\n", kMatpowProgram, warning.c_str(),
                   found.name.ShortName().c_str());
    }
    for (const auto& thread : threads_) {
      if (thread->device().name() == found.name.ShortName()) return thread.get();
    }
    CAIRN_ASSIGN_OR_RETURN(
        threads_.emplace_back(),
        nn::DeviceThread::Start(
            found.name.ShortName().substr(1), [&]() -> absl::StatusOr<std::unique_ptr<kernels::Device>> {
              CAIRN_ASSIGN_OR_RETURN(worker::ChosenDevice made, worker::MakeDevice(found, request, backends));
              return std::move(made.device);
            }));
    return threads_.back().get();
  }

  void Print(const char* what, const nn::DeviceThread& thread) const {
    if (log_placement_) std::fprintf(stderr, "%s: %s\n", what, thread.device().Description().c_str());
  }

  // Fills a matrix with uniform values. Its rows sum to about 1, so that its powers neither grow nor vanish.
  void Fill(Power& power, size_t index) const {
    Random random(seed_ + index, "matpow");
    power.base = AlignedBuffer(elements());
    power.result = AlignedBuffer(elements());
    for (float& value : power.base.span()) value = random.NextUniform() * 2 / static_cast<float>(size_);
  }

  absl::Status Prepare(Power& power) const {
    kernels::Device& device = power.thread->device();
    CAIRN_ASSIGN_OR_RETURN(power.product, device.ops().MakeDense({.input = {.shape = {size_, size_}},
                                                                  .units = size_,
                                                                  .use_bias = false,
                                                                  .needs_input_gradient = false}));
    for (auto& memory : power.memory) {
      CAIRN_ASSIGN_OR_RETURN(memory, device.Allocate(elements(), "matrix"));
    }
    return device.Synchronize();
  }

  absl::Status Raise(Power& power) const {
    kernels::Device& device = power.thread->device();
    const int64_t bytes = elements() * int64_t{sizeof(float)};
    const float* const base = power.memory[0]->data();
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(power.base.data(), power.memory[0]->data(), bytes));
    const float* last = base;
    float *to = power.memory[1]->data(), *other = power.memory[2]->data();
    for (int64_t product = 1; product < power_; ++product) {
      CAIRN_RETURN_IF_ERROR(power.product->Forward(last, base, nullptr, to));
      last = to;
      std::swap(to, other);
    }
    CAIRN_RETURN_IF_ERROR(device.CopyToHost(last, power.result.data(), bytes));
    return device.Synchronize();
  }

  absl::Status Add(kernels::Device& device, const AlignedBuffer& a, const AlignedBuffer& b,
                   AlignedBuffer& sum) const {
    const int64_t bytes = elements() * int64_t{sizeof(float)};
    CAIRN_ASSIGN_OR_RETURN(const auto add, device.ops().MakeAdd({.shape = {size_, size_}}, 2));
    CAIRN_ASSIGN_OR_RETURN(const auto first, device.Allocate(elements(), "matrix"));
    CAIRN_ASSIGN_OR_RETURN(const auto second, device.Allocate(elements(), "matrix"));
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(a.data(), first->data(), bytes));
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(b.data(), second->data(), bytes));
    const float* const terms[] = {first->data(), second->data()};
    CAIRN_RETURN_IF_ERROR(add->Forward(terms, first->data()));
    CAIRN_RETURN_IF_ERROR(device.CopyToHost(first->data(), sum.data(), bytes));
    return device.Synchronize();
  }

  // The largest relative difference between the row sums of the result and A(A...(A 1)) + B(B...(B 1)) in
  // double precision. The reference needs only matrix-vector products, which are cheap.
  double Error(const Power (&powers)[2], const AlignedBuffer& sum) const {
    const auto n = static_cast<size_t>(size_);
    std::vector<double> expected(n);
    for (const Power& power : powers) {
      std::vector<double> vector(n, 1.0), next(n);
      for (int64_t product = 0; product < power_; ++product) {
        for (size_t row = 0; row < n; ++row) {
          const float* const values = power.base.data() + row * n;
          double total = 0;
          for (size_t column = 0; column < n; ++column) total += double{values[column]} * vector[column];
          next[row] = total;
        }
        vector.swap(next);
      }
      for (size_t row = 0; row < n; ++row) expected[row] += vector[row];
    }
    double error = 0;
    for (size_t row = 0; row < n; ++row) {
      double total = 0;
      for (size_t column = 0; column < n; ++column) total += double{sum.data()[row * n + column]};
      error = std::max(error, std::abs(total - expected[row]) / std::abs(expected[row]));
    }
    return error;
  }

  int64_t size_ = 1000, power_ = 10;
  std::vector<std::string> devices_ = {"auto"};
  std::string sum_device_ = "/cpu:0";
  uint64_t seed_ = 0;
  bool log_placement_ = false, allow_soft_placement_ = false;
  int cpu_devices_ = 1;
  std::string visible_devices_;
  std::vector<std::unique_ptr<nn::DeviceThread>> threads_;
};

}  // namespace

std::unique_ptr<Command> MakeMatpowCommand() {
  return std::make_unique<MatpowCommand>();
}

}  // namespace cairn::cli

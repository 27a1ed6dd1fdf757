// The device that a benchmark's flags ask for.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda_backend.h"

namespace cairn::bench {

// `name`: "/cpu:0" with `threads` threads, or "/gpu:N". `precision`: "tf32", which is float32 on the CPU.
inline absl::StatusOr<std::unique_ptr<kernels::Device>> MakeDevice(const std::string& name,
                                                                   const std::string& precision,
                                                                   int threads) {
  constexpr char kGpu[] = "/gpu:";
  kernels::CudaOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.precision, kernels::ParsePrecision(precision));
  if (absl::StartsWith(name, kGpu) && absl::SimpleAtoi(name.substr(sizeof(kGpu) - 1), &options.index)) {
    return kernels::CreateCudaDevice(options);
  }
  if (name == "/cpu:0") {
    return kernels::CreateCpuDevice(0, threads, /*memory_limit_bytes=*/0,
                                    options.precision == kernels::Precision::kBFloat16
                                        ? kernels::ElementType::kBFloat16
                                        : kernels::ElementType::kFloat32);
  }
  return absl::InvalidArgumentError(absl::StrCat("--device '", name, "' is neither /cpu:0 nor /gpu:N"));
}

}  // namespace cairn::bench

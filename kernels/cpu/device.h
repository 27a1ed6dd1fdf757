// The CPU backend: oneDNN for convolutions and matrix products, our own loops for the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace cairn::kernels {

// A description of the processor, for the user.
struct CpuDeviceInfo {
  std::string processor;        // "AMD EPYC 9B45"
  std::string instruction_set;  // "AVX-512", "AVX2" or "no AVX2"
  bool bfloat16 = false;        // whether it multiplies bfloat16 (AVX-512 BF16 or AMX)
  std::string library;          // "oneDNN 2.6.3"
  int64_t memory_bytes = 0;     // the machine's memory
};
CpuDeviceInfo DescribeCpu();

// Creates "/cpu:<index>", which computes with `threads` OpenMP threads. OpenMP keeps their number per calling
// thread: it applies to the thread that makes and runs the ops. With the same number of threads, results are
// the same on every run, bit for bit.
// INVALID_ARGUMENT if `threads` < 1. If several processes share the machine, start them with
// OMP_WAIT_POLICY=passive, because spinning threads take cores from the other processes.
//
// `operands`: kBFloat16 rounds the operands of matrix products and convolutions to bfloat16 where that is faster; sums,
// activations and gradients stay float32. FAILED_PRECONDITION unless the processor multiplies bfloat16.
//
// Several devices of one process are as independent as GPUs: each counts the memory allocated on it, up to
// `memory_limit_bytes` (0: the memory of the machine), and each computes in its own threads.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int index, int threads,
                                                        int64_t memory_limit_bytes = 0,
                                                        ElementType operands = ElementType::kFloat32);

}  // namespace cairn::kernels

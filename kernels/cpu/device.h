// The CPU backend: convolutions and matrix products by oneDNN, loops of our own for the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace cairn::kernels {

// The processor, as a person is told of it.
struct CpuDeviceInfo {
  std::string processor;        // "AMD EPYC 9B45"
  std::string instruction_set;  // "AVX-512", "AVX2" or "no AVX2"
  std::string library;          // "oneDNN 2.6.3"
  int64_t memory_bytes = 0;     // of the machine
};
CpuDeviceInfo DescribeCpu();

// "/cpu:<index>", computing with `threads` threads: those of OpenMP under the thread that makes and runs the
// ops. Every op must run in a thread that sees the same OpenMP runtime; the number of threads is set per
// calling thread. With the same number of threads, results are the same on every run, bit for bit.
// INVALID_ARGUMENT when `threads` < 1. Where several processes share the machine, start them with
// OMP_WAIT_POLICY=passive: spinning threads of one steal the cores of the other.
//
// Several devices of one process are as separate as GPUs are: each counts the memory that is allocated on it,
// up to `memory_limit_bytes` (0: what the machine has), and each of them computes in threads of its own.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int index, int threads,
                                                        int64_t memory_limit_bytes = 0);

}  // namespace cairn::kernels

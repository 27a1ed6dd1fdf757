// The CPU backend: convolutions and matrix products by oneDNN, loops of our own for the rest.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace cairn::kernels {

// "/cpu:<index>", computing with `threads` threads: those of OpenMP under the thread that makes and runs the
// ops. Every op must run in a thread that sees the same OpenMP runtime; the number of threads is set per
// calling thread. With the same number of threads, results are the same on every run, bit for bit.
// INVALID_ARGUMENT when `threads` < 1. Where several processes share the machine, start them with
// OMP_WAIT_POLICY=passive: spinning threads of one steal the cores of the other.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int index, int threads);

}  // namespace cairn::kernels

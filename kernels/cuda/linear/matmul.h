// Products of row-major matrices with cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/device.h"

namespace cairn::kernels::cuda {

// c [m, n] = a b, where a is [m, k] and b is [k, n]. Each may be stored transposed: a as [k, m], b as [n, k].
struct MatmulParams {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  ElementType operands = ElementType::kFloat32, result = ElementType::kFloat32;
  bool bias = false;  // c = a b + bias, with a bias [n] of the result's type
};

class Matmul {
 public:
  static absl::StatusOr<std::unique_ptr<Matmul>> Create(Context& context, const MatmulParams& params);
  virtual ~Matmul() = default;
  // Addresses must be aligned to 4 bytes; alignment to 16 bytes is faster. `bias` is null if there is none.
  virtual absl::Status Run(const void* a, const void* b, const void* bias, void* c) = 0;
};

}  // namespace cairn::kernels::cuda

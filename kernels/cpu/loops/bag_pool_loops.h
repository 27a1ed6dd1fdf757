// The loops that pool bags of rows (kernels/bag_pool.h), compiled for each instruction set without fused multiply-adds.
// Each column is summed on its own, so all instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "kernels/bag_pool.h"
#include "kernels/cpu/loops/vectors.h"
#include "kernels/cpu/pool_bags.h"

namespace cairn::kernels::cpu {

struct BagPoolCode {
  // See PoolBags() and AddBagGradients().
  void (*pool)(const HostBags& bags, const HostRows& rows, float* pooled);
  void (*add_gradients)(const HostBags& bags, const HostRows& rows, const float* dpooled, float* dvalues);
};

namespace avx512 {
BagPoolCode BagPoolLoops();
}
namespace avx2 {
BagPoolCode BagPoolLoops();
}
namespace portable {
BagPoolCode BagPoolLoops();
}

}  // namespace cairn::kernels::cpu

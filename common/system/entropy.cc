#include "common/system/entropy.h"

#include <random>

namespace cairn {

uint64_t DrawRandomBits() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

}  // namespace cairn

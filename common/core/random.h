// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011). A value depends only on (seed, stream, index). Initial values, shuffles and generated data are
// therefore independent of the number of servers, workers and threads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/host_device.h"

namespace cairn {

// Four 32-bit words for one 128-bit counter under one 64-bit key.
CAIRN_HOST_DEVICE inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                                            std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// A stable 64-bit number (FNV-1a) for the name of a stream, for example "init/conv2d/kernel".
uint64_t StreamOf(absl::string_view name);

// A sequence of random numbers, the same for the same (seed, stream). Cheap to create, not thread-safe.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  Random(uint64_t seed, absl::string_view stream) : Random(seed, StreamOf(stream)) {}

  uint32_t NextUint32();
  // In [0, bound), without bias (Lemire's method). bound > 0.
  uint32_t NextBelow(uint32_t bound);
  // In [0, 1), with 24 random bits.
  float NextUniform();
  // In [low, high).
  float NextUniform(float low, float high) { return low + (high - low) * NextUniform(); }
  // Standard normal, by the Box-Muller transform.
  float NextNormal();

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t block_ = 0;
  int used_ = 4;
  std::array<uint32_t, 4> words_{};
};

// A permutation of 0 .. count-1 (Fisher-Yates shuffle).
std::vector<uint32_t> RandomPermutation(uint32_t count, Random& random);

}  // namespace cairn

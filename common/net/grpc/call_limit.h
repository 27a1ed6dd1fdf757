// Time limits of calls whose work grows with the size of the variables.
#pragma once

#include <chrono>
#include <cstdint>

namespace cairn::net {

// The extra time limit of a call for which a server allocates, sends or receives `bytes`. It assumes 8 MiB/s,
// well below the memory and network bandwidth of any machine that trains.
inline std::chrono::milliseconds TimeForBytes(int64_t bytes) {
  constexpr int64_t kBytesPerMillisecond = (int64_t{8} << 20) / 1000;
  return std::chrono::milliseconds(bytes / kBytesPerMillisecond);
}

}  // namespace cairn::net

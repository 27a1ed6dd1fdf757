// How long a call may take whose work grows with the size of the variables.
#pragma once

#include <chrono>
#include <cstdint>

namespace cairn::net {

// What such a call gets beyond the limit of a small one, where a server allocates, sends or takes so many
// bytes: 8 MiB/s, well below the memory and the network of any machine that trains.
inline std::chrono::milliseconds TimeForBytes(int64_t bytes) {
  constexpr int64_t kBytesPerMillisecond = (int64_t{8} << 20) / 1000;
  return std::chrono::milliseconds(bytes / kBytesPerMillisecond);
}

}  // namespace cairn::net

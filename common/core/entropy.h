// Bits that no other process draws as well.
#pragma once

#include <cstdint>

namespace cairn {

// 64 random bits of the system's. Any thread.
uint64_t DrawRandomBits();

}  // namespace cairn

// Random bits from the operating system, different in each process.
#pragma once

#include <cstdint>

namespace cairn {

// 64 random bits. Any thread.
uint64_t DrawRandomBits();

}  // namespace cairn

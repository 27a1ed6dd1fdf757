// The source of a store's memory: allows or refuses allocations, and counts them.
//
// The owner of a store implements it, usually by the memory budget of a server. A source must be thread-safe if
// stores on several threads share it, and must outlive them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace cairn::embedding {

class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // Called before `bytes` are allocated. An error, which changes nothing, forbids the allocation; its message gives
  // the numbers.
  virtual absl::Status Take(int64_t bytes) = 0;
  // Called after `bytes` were freed.
  virtual void Give(int64_t bytes) = 0;
};

}  // namespace cairn::embedding

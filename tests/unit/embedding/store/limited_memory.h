// A MemorySource with a limit, for tests.
#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "embedding/store/memory_source.h"

namespace cairn::embedding {

class LimitedMemory : public MemorySource {
 public:
  explicit LimitedMemory(int64_t limit) : limit_(limit) {}

  absl::Status Take(int64_t bytes) override {
    if (used_ + bytes > limit_) {
      return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes beside ", used_, " of ", limit_));
    }
    used_ += bytes;
    return absl::OkStatus();
  }
  void Give(int64_t bytes) override { used_ -= bytes; }

  int64_t used() const { return used_; }
  void set_limit(int64_t limit) { limit_ = limit; }

 private:
  int64_t limit_;
  int64_t used_ = 0;
};

}  // namespace cairn::embedding

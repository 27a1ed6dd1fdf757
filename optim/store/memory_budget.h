// Counts the bytes that the values, slots and buffers of one job take on this server, and limits them.
//
// Created with the job's variable store. The store and the buffer pools count their allocations. The buffer
// for the next version of an update is taken without a check, because the job would fail without it. Other
// allocations are checked first and may be refused: chunks that arrive, values for readers, a snapshot's
// slots. A reader is admitted only if there is room for the version that will be written meanwhile.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/memory/memory_size.h"

namespace cairn::optim {

class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit_bytes) : limit_(limit_bytes) {}

  // False, without effect, if the bytes would exceed the limit.
  bool TryTake(int64_t bytes) {
    int64_t used = used_;
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  void Take(int64_t bytes) { used_ += bytes; }
  void Give(int64_t bytes) { used_ -= bytes; }

  bool HasRoomFor(int64_t bytes) const { return bytes <= limit_ - used_; }
  int64_t used() const { return used_; }
  // RESOURCE_EXHAUSTED: "no memory for <what>, 0.5 GiB: 3.8 GiB of 4 GiB are in use".
  absl::Status Refusal(absl::string_view what, int64_t bytes) const {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", what, ", ", InGiB(static_cast<double>(bytes)), ": ",
                     InGiB(static_cast<double>(used_)), " of ", InGiB(static_cast<double>(limit_)),
                     " are in use (--memory_limit)"));
  }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace cairn::optim

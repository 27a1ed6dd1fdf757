// The state or the mean of a table beside the variables, while its chunks arrive.
//
// Owned by the stream that brings them; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "optim/store/buffer_pool.h"
#include "optim/store/memory_budget.h"
#include "ps/table/accumulator.h"

namespace cairn::ps {

class ReceivedState {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 40;

  // `size`: the number of floats. INVALID_ARGUMENT if it is out of range.
  static absl::StatusOr<std::unique_ptr<ReceivedState>> Create(int64_t size,
                                                               std::shared_ptr<optim::MemoryBudget> budget) {
    if (size < 1 || size > kMaxSize) {
      return absl::InvalidArgumentError(absl::StrCat("the state of a table cannot have ", size, " values"));
    }
    return std::unique_ptr<ReceivedState>(new ReceivedState(size, std::move(budget)));
  }

  // As Accumulator::Add().
  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) { return floats_.Add(chunk, payload); }
  int64_t received() const { return floats_.received(); }
  int64_t size() const { return floats_.size(); }
  bool complete() const { return floats_.complete(); }
  // To be called once, when it is complete.
  std::shared_ptr<const AlignedBuffer> Take() { return floats_.Take().buffer(); }

 private:
  ReceivedState(int64_t size, std::shared_ptr<optim::MemoryBudget> budget)
      : pool_(size, /*max_idle=*/0, std::move(budget)), floats_(pool_) {}

  optim::BufferPool pool_;
  Accumulator floats_;
};

}  // namespace cairn::ps

// A version's values in the encoding in which they travel: made once, for however many workers pull them, as
// a whole or piece by piece.
//
// Thread-safe. What it hands out may outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "ps/buffer_pool.h"

namespace cairn::ps {

class EncodedValues {
 public:
  // Of values of `size` elements.
  EncodedValues(int64_t size, std::shared_ptr<MemoryBudget> budget);

  // Element i at byte 2 i. `encoding` is one of 16 bits. RESOURCE_EXHAUSTED when there is no room for them.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Of(const std::shared_ptr<const AlignedBuffer>& values,
                                                          v1::Encoding encoding) ABSL_LOCKS_EXCLUDED(mutex_);
  // Likewise of values that are not all there yet: elements [begin, end) of it are right. The same pieces
  // each time, which begin at even elements.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> OfPiece(
      const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding, int64_t begin, int64_t end)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Makes `kept_` be of these, without any element if it was not.
  absl::Status Keep(const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BufferPool pool_;
  Mutex mutex_;
  // What was asked for last. It does not keep the values.
  struct Kept {
    std::weak_ptr<const AlignedBuffer> source{};
    v1::Encoding encoding = v1::ENCODING_FLOAT32;
    std::shared_ptr<AlignedBuffer> encoded{};  // null: nothing
    std::set<int64_t> pieces{};                // their begins
    int64_t elements = 0;                      // in them
  };
  Kept kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
